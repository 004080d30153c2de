// The parameters of a model as the CPU's forward pass reads them: each matrix in the order in which
// the products read it, and in no other, the rest in an arena. Decoding a few tokens then reads
// every weight once, in sequence, and each weight is in memory once. For models that compute often
// and change seldom.
//
//   PackedArena weights(model.table(), at::kBFloat16);
//   weights.Write(segment, 0, bytes);              // or into SegmentBytes(segment), then Pack()
//   at::Tensor x = model.Embed(weights, token_ids);
#ifndef TANDEM_COMMON_MODEL_PACKED_ARENA_H_
#define TANDEM_COMMON_MODEL_PACKED_ARENA_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/model/arena.h"
#include "common/model/kernels/packed_matrix.h"
#include "common/model/parameter_provider.h"

namespace tandem::model {

// Results are the same bits as over an Arena, where no graph is recorded. The embedding of a tied
// model, which is looked up and multiplied by, is held in both orders. Constructing allocates and
// leaves the contents undefined. Segments are those of the table, which must outlive it; offsets
// and sizes are bytes of one, whole elements. Threads may read at once; who writes keeps readers
// away.
class PackedArena : public ParameterProvider {
 public:
  // `packs`: false where the forward pass runs elsewhere, and reads an Arena.
  PackedArena(const ParameterTable& table, at::ScalarType dtype, bool packs = true);

  // Of a matrix that is packed alone the shape.
  const at::Tensor& Get(int index) const override { return arena_.Get(index); }
  const kernels::PackedMatrix* Packed(int index) const override { return matrices_[index].get(); }

  // What is not packed alone.
  const Arena& arena() const { return arena_; }
  // A segment's bytes there; none where it is packed alone: then the others are to be used.
  absl::Span<std::byte> SegmentBytes(size_t segment) const { return arena_.SegmentBytes(segment); }
  void Write(size_t segment, int64_t offset, absl::Span<const std::byte> from);
  void Read(size_t segment, int64_t offset, absl::Span<std::byte> to) const;
  // SegmentBytes() have their new contents from `offset` on: packs them, where they are to be.
  void Pack(size_t segment, int64_t offset, int64_t size);
  // Writing and packing are fastest in whole grains of the parameter: `before` bytes of it come
  // before the segment.
  struct Grain {
    int64_t before = 0;
    int64_t size_bytes = 0;  // 0 where nothing is packed
  };
  Grain GrainOf(size_t segment) const;

  // Takes over all of an arena of the table and dtype, or gives it.
  void CopyFrom(const Arena& other);
  void CopyTo(Arena& other) const;

  // Gives the memory back to the system; addresses stay, contents are lost.
  void ReleaseMemory();

 private:
  // Where a segment begins within its parameter, in elements.
  int64_t FirstElement(size_t segment) const;
  kernels::PackedMatrix* MatrixOf(size_t segment) const;

  const ParameterTable& table_;
  const int64_t element_bytes_;
  Arena arena_;
  // Of all matrices, side by side: large pages then hold many small ones, which read one after
  // another miss the translation buffer seldom.
  kernels::Buffer memory_;
  int64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<kernels::PackedMatrix>> matrices_;  // null where it is not packed
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_ARENA_H_
