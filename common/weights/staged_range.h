// StagedRange(): finds pieces of a bucket that are one range of the staged memory, so that they are
// received into it or relayed from it without a copy.
#ifndef TANDEM_COMMON_WEIGHTS_STAGED_RANGE_H_
#define TANDEM_COMMON_WEIGHTS_STAGED_RANGE_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>

#include "absl/types/span.h"
#include "common/weights/update_memory.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::weights {

// Returns the staged bytes of pieces [first, first + count); empty if they are not one range, which
// a packed tensor and a piece of several runs never are.
inline absl::Span<std::byte> StagedRange(
    UpdateMemory& memory, const google::protobuf::RepeatedPtrField<common::v1::BucketPiece>& pieces,
    int first, int count) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (int i = first; i < first + count; ++i) {
    const common::v1::BucketPiece& piece = pieces[i];
    const absl::Span<std::byte> tensor = memory.Staged(piece.tensor());
    if (piece.repeat() > 1 || tensor.empty()) return {};
    std::byte* const here = tensor.data() + piece.tensor_offset();
    if (begin == nullptr) begin = end = here;
    if (here != end) return {};
    end += piece.size_bytes();
  }
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_STAGED_RANGE_H_
