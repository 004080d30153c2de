// RecurrentStates: what the layers with linear attention (layers/delta_spec.h) keep of each running
// sequence: the state of every value head, in float32, and the last inputs of the convolution. Its
// size does not depend on the sequence's length.
//
//   ASSIGN_OR_RETURN(RecurrentStates states, RecurrentStates::Create({.layers = deltas, .count = 8}));
//   states.Copy(0, 1);   // the sequence with state 1 continues from the tokens of that with state 0
#ifndef TANDEM_COMMON_MODEL_RECURRENT_STATES_H_
#define TANDEM_COMMON_MODEL_RECURRENT_STATES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layers/delta_spec.h"

namespace tandem::model {

struct RecurrentStateOptions {
  std::vector<std::optional<DeltaSpec>>
      layers;                         // of the model; empty, like none: no layer has states
  int64_t count = 0;                  // sequences
  at::ScalarType dtype = at::kFloat;  // of the convolution's inputs: the activations'
  at::Device device = at::kCPU;

  bool empty() const;
};

// Owns the memory; the scheduler assigns states to sequences. On the CPU the system provides it when a
// state is first written. Thread-compatible. Without options it holds nothing.
class RecurrentStates {
 public:
  RecurrentStates() = default;
  // RESOURCE_EXHAUSTED if the allocation fails.
  static absl::StatusOr<RecurrentStates> Create(const RecurrentStateOptions& options);

  // Bytes of one sequence's state, in all layers.
  static int64_t BytesPerSequence(const RecurrentStateOptions& options);

  int64_t count() const { return options_.count; }
  // Throws unless `state` is one.
  void Check(int64_t state) const;

  // Of a layer with linear attention; `state` below count(). [num_value_heads, key_dim, padded
  // value_dim] (kernels/delta_rule.h), on the device.
  float* State(int64_t layer, int64_t state) const;
  // [kernel_size - 1, convolved_size] of dtype.
  void* Tail(int64_t layer, int64_t state) const;
  // From a state, or a tail, of a layer to that of the next sequence.
  int64_t bytes_between() const { return bytes_; }

  // In all layers; on a GPU on the current stream.
  void Copy(int64_t from, int64_t to);
  // Returns the memory; the contents are lost. States can be used again, on a GPU only after
  // TakeMemory(), whose addresses may be others.
  void ReleaseMemory();
  absl::Status TakeMemory();

 private:
  // Where a layer's state and tail lie among those of a sequence.
  struct Place {
    int64_t state = 0;
    int64_t tail = 0;
  };

  RecurrentStateOptions options_;
  std::vector<Place> places_;  // of each layer
  int64_t bytes_ = 0;          // of a sequence
  at::Tensor memory_;          // uint8 [count, bytes_]
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_RECURRENT_STATES_H_
