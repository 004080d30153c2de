// Arena: all parameters of a model in one allocation. On the CPU it is memory that other processes
// of the host can map (comm/shareable_memory.h).
//
//   Arena arena(model.table(), at::kBFloat16);
//   RETURN_IF_ERROR(LoadParameters(folder, arena));
//   at::Tensor x = model.Embed(arena, token_ids, positions);
#ifndef TANDEM_COMMON_MODEL_ARENA_H_
#define TANDEM_COMMON_MODEL_ARENA_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "common/model/parameter_provider.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// A parameter's address is fixed for the arena's life and a multiple of 64 bytes; its segments
// follow one another without gaps. Constructing allocates and leaves the contents undefined. The
// table must outlive the arena. Threads may read concurrently; a writer needs exclusive access.
class Arena : public ParameterProvider {
 public:
  // Of `dtype`, but for parameters that are in float32 in every model.
  //
  // `leaves_out`: returns true for a parameter that is stored elsewhere; it has a shape here and a
  // null data pointer. Null: nothing is left out.
  using LeavesOut = std::function<bool(int index)>;

  Arena(const ParameterTable& table, at::ScalarType dtype, at::Device device = at::kCPU,
        const LeavesOut& leaves_out = nullptr);

  const at::Tensor& Get(int index) const override { return parameters_[index]; }

  const ParameterTable& table() const { return table_; }
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType DTypeOf(int index) const { return parameters_[index].scalar_type(); }
  // The segment table().segments()[i], as a view in its logical shape.
  at::Tensor SegmentTensor(size_t i) const;
  // Bytes of that segment; empty if it is left out. If the arena is not on the CPU, the pointer is
  // a device address: do not dereference it on the host.
  absl::Span<std::byte> SegmentBytes(size_t i) const;

  // The allocation, gaps included.
  absl::Span<std::byte> bytes() const;

  // Copies the contents of another arena with the same table and dtype. If either is on a GPU, the
  // copy is ordered on the current stream. Returns when the copy is complete.
  void CopyFrom(const Arena& other);

  // Returns the memory to the system; addresses stay valid, contents are lost. CPU only.
  void ReleaseMemory();

  // Makes every trainable parameter a leaf that accumulates its gradient in Get(i).grad(); for
  // references and tests.
  void RequireGrad();

 private:
  const ParameterTable& table_;
  at::ScalarType dtype_;
  at::Tensor storage_;  // uint8
  std::vector<at::Tensor> parameters_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ARENA_H_
