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
// On a GPU nothing is copied.
// Results are the same bits with and without. The arena must outlive it.
class PackedWeights : public ParameterProvider {
 public:
  // Nothing is packed yet: products read the arena.
  explicit PackedWeights(const Arena& arena);
  ~PackedWeights() override;

  // To be called before the arena's contents change, while nobody computes with them: what was
  // packed counts no more. Its memory is kept.
  void Invalidate();
  // Elements [first, first + count) of a parameter have their new contents; each is told of once.
  // Packs the panels that this completes: while they are in the core's cache, if they have just
  // been written. Of no effect on a parameter that is never packed.
  void Pack(int index, int64_t first, int64_t count);
  // Whether a parameter is ever packed.
  bool IsPacked(int index) const;
  // Packs what is not packed since Invalidate().
  void PackRest();
  // As Invalidate(), and frees the memory.
  void ReleaseMemory();

  const at::Tensor& Get(int index) const override { return arena_.Get(index); }
  const kernels::PackedMatrix* Packed(int index) const override {
    return entries_[index].fresh ? entries_[index].matrix.get() : nullptr;
  }

 private:
  struct Entry {
    std::unique_ptr<kernels::PackedMatrix> matrix;
    std::vector<int64_t> missing;  // elements of each panel
    int64_t panels_left = 0;
    bool fresh = false;
  };

  // Allocates the panels of all parameters, side by side: large pages then hold many small
  // matrices, which read one after another miss the translation buffer seldom.
  void Allocate();
  // False where the parameter is never packed.
  bool Prepare(int index);

  const Arena& arena_;
  kernels::Buffer memory_;      // of all matrices; null until the first is packed
  std::vector<Entry> entries_;  // one a parameter
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_WEIGHTS_H_
