// A model's matrices in the order in which the CPU's matrix product reads them: decoding a few
// tokens then reads every weight once, in sequence. For models that compute often and change
// seldom.
#ifndef TANDEM_COMMON_MODEL_PACKED_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_PACKED_WEIGHTS_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "common/model/arena.h"
#include "common/model/kernels/gemm.h"
#include "common/model/parameter_provider.h"

namespace tandem::model {

// The parameters of an arena, with a packed copy beside each matrix: twice the arena's memory.
// Where the products are not ours (linear.h: a GPU, or bfloat16 in hardware) nothing is copied.
// Results are the same bits with and without. The arena must outlive it.
class PackedWeights : public ParameterProvider {
 public:
  explicit PackedWeights(const Arena& arena);
  ~PackedWeights() override;

  // Copies the arena's present contents; to be called whenever they have changed, while nobody
  // computes with them. One pass over the weights.
  void Repack();

  const at::Tensor& Get(int index) const override { return arena_.Get(index); }
  const kernels::PackedMatrix* Packed(int index) const override { return packed_[index].get(); }

 private:
  const Arena& arena_;
  std::vector<std::unique_ptr<kernels::PackedMatrix>> packed_;  // null where there is none
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_WEIGHTS_H_
