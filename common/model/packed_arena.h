// PackedArena: a model's parameters for the CPU's forward pass. It stores each matrix only in the
// packed order in which matrix products read it, and the other parameters in an arena. Decoding a
// few tokens then reads every weight once, sequentially, and each weight is in memory once. For
// models that compute often and change rarely.
//
//   PackedArena weights(model.table(), at::kBFloat16);
//   weights.Write(segment, 0, bytes);              // or into SegmentBytes(segment), then Pack()
//   at::Tensor x = model.Embed(weights, token_ids, positions);
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

// Results have the same bits as with an Arena when no graph is recorded. A tied model's embedding,
// which is looked up and multiplied by, is held in both orders. Constructing allocates and leaves
// the contents undefined. Segments are those of the table, which must outlive the arena; offsets
// and sizes are bytes within a segment, in whole elements. Threads may read concurrently; a writer
// needs exclusive access.
class PackedArena : public ParameterProvider {
 public:
  // `packs`: false if the forward pass runs elsewhere and reads an Arena. Only then may the memory
  // be that of another `device`.
  PackedArena(const ParameterTable& table, at::ScalarType dtype, bool packs = true,
              at::Device device = at::kCPU);

  // For a matrix that is stored only packed, the tensor has a shape but no data.
  const at::Tensor& Get(int index) const override { return arena_.Get(index); }
  const kernels::PackedMatrix* Packed(int index) const override { return matrices_[index].get(); }

  // The parameters that are not stored only packed.
  const Arena& arena() const { return arena_; }
  Arena& arena() { return arena_; }
  // A segment's bytes in the arena; empty if it is stored only packed: then use Write() and Read().
  absl::Span<std::byte> SegmentBytes(size_t segment) const { return arena_.SegmentBytes(segment); }
  void Write(size_t segment, int64_t offset, absl::Span<const std::byte> from);
  void Read(size_t segment, int64_t offset, absl::Span<std::byte> to) const;
  // Call after writing SegmentBytes() from `offset` on: packs them if the segment is also packed.
  void Pack(size_t segment, int64_t offset, int64_t size);
  // Writing and packing are fastest in whole grains of the parameter: `before` is the bytes of the
  // parameter before the segment.
  struct Grain {
    int64_t before = 0;
    int64_t size_bytes = 0;  // 0: not packed
  };
  Grain GrainOf(size_t segment) const;

  // Copies all segments from, or to, an arena with the same table and dtype.
  void CopyFrom(const Arena& other);
  void CopyTo(Arena& other) const;

  // Whether a parameter has the same bytes in an arena of the same table, dtype, packing and device.
  bool HasSameBytes(const PackedArena& other, int index) const;

  // Returns the memory to the system; addresses stay valid, contents are lost.
  void ReleaseMemory();

 private:
  // First element of a segment within its parameter.
  int64_t FirstElement(size_t segment) const;
  kernels::PackedMatrix* MatrixOf(size_t segment) const;

  const ParameterTable& table_;
  const int64_t element_bytes_;
  Arena arena_;
  // Memory of all matrices, contiguous: large pages then hold many small matrices, so reading them
  // in sequence rarely misses the TLB.
  kernels::Buffer memory_;
  int64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<kernels::PackedMatrix>> matrices_;  // null: not packed
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_ARENA_H_
