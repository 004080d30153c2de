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

  bool empty() const;
};

// Owns the memory, on the CPU, which the system provides when a state is first written; the scheduler
// assigns states to sequences. Thread-compatible. Without options it holds nothing.
class RecurrentStates {
 public:
  RecurrentStates() = default;
  // RESOURCE_EXHAUSTED if the allocation fails.
  static absl::StatusOr<RecurrentStates> Create(const RecurrentStateOptions& options);

  // Bytes of one sequence's state, in all layers.
  static int64_t BytesPerSequence(const RecurrentStateOptions& options);

  int64_t count() const { return options_.count; }

  // Of a layer with linear attention; `state` below count(). [num_value_heads, key_dim, padded
  // value_dim] (kernels/delta_rule.h).
  float* State(int64_t layer, int64_t state) const;
  // [kernel_size - 1, convolved_size] of dtype.
  void* Tail(int64_t layer, int64_t state) const;

  void Copy(int64_t from, int64_t to);
  // Returns the memory to the system; the contents are lost.
  void ReleaseMemory();

 private:
  RecurrentStateOptions options_;
  // [count, bytes], undefined for layers without a state.
  std::vector<at::Tensor> states_;
  std::vector<at::Tensor> tails_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_RECURRENT_STATES_H_
