// Arena: all parameters of a model in one allocation, on the CPU such that other processes of the
// host can map it (comm/shareable_memory.h).
//
//   Arena arena(model.table(), at::kBFloat16);
//   RETURN_IF_ERROR(LoadParameters(folder, arena));
//   at::Tensor x = model.Embed(arena, token_ids);
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
// table must outlive it. Threads may read at once; who writes keeps readers away.
class Arena : public ParameterProvider {
 public:
  // `leaves_out`: of a parameter that somebody else holds; of it there is a shape, and null for
  // data. None: nothing is left out.
  using LeavesOut = std::function<bool(int index)>;

  Arena(const ParameterTable& table, at::ScalarType dtype, at::Device device = at::kCPU,
        const LeavesOut& leaves_out = nullptr);

  const at::Tensor& Get(int index) const override { return parameters_[index]; }

  const ParameterTable& table() const { return table_; }
  at::ScalarType dtype() const { return dtype_; }
  // The segment table().segments()[i], as a view in its logical shape.
  at::Tensor SegmentTensor(size_t i) const;
  // Its bytes; none where it is left out. On another device than the CPU: an address there, not to
  // be followed here.
  absl::Span<std::byte> SegmentBytes(size_t i) const;

  // The allocation, gaps included.
  absl::Span<std::byte> bytes() const;

  // Takes over the contents of another arena of the table and dtype, in the order of the current
  // stream where one of them is on a GPU, and returns when it is done.
  void CopyFrom(const Arena& other);

  // Gives the memory back to the system; addresses stay, contents are lost. On the CPU.
  void ReleaseMemory();

  // Makes every trainable parameter a leaf that collects a gradient in Get(i).grad(); for
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
