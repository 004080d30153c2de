// Deltas: what changed between two versions of some weights, element by element, without loss. The
// bytes are described in delta_format.md.
//
//   // The sender has both versions, the receiver's buffer holds the base.
//   ASSIGN_OR_RETURN(DeltaStats sent, EncodeDelta(base, next, 2, out));
//   Send(out.first(sent.coded_bytes));
//   ASSIGN_OR_RETURN(DeltaStats got, ApplyDelta(coded, buffer));
//
// Made for steps of an optimizer, which change a few elements in a hundred, most by one unit in the
// last place: a change then costs its place's entropy and a bit for its sign, within a few percent.
// A delta is never larger than the bytes themselves and a header; where it would be, or where more
// than three quarters of the elements change, it is dense: a copy. There is no digest in it:
// whoever applies it compares those of the weights.
#ifndef TANDEM_COMMON_WEIGHTS_DELTA_CODEC_H_
#define TANDEM_COMMON_WEIGHTS_DELTA_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::weights {

inline constexpr int64_t kDeltaHeaderBytes = 32;

struct DeltaStats {
  int64_t coded_bytes = 0;
  int64_t elements = 0;
  int64_t changed = 0;
  bool dense = false;

  // Of the elements, how many changed: 0 to 1.
  double density() const { return elements == 0 ? 0 : static_cast<double>(changed) / elements; }
};

// The room that the delta of two buffers of `size_bytes` needs at most.
constexpr int64_t MaxEncodedBytes(int64_t size_bytes) { return kDeltaHeaderBytes + size_bytes; }

// Writes the delta from `base` to `next` to the first coded_bytes of `out`; bytes behind them may
// be overwritten as well. Elements have 2 or 4 bytes and lie at any address. Allocates nothing;
// `out` overlaps neither input. INVALID_ARGUMENT: the sizes differ or are not whole elements, or
// `out` is smaller than MaxEncodedBytes().
absl::StatusOr<DeltaStats> EncodeDelta(absl::Span<const std::byte> base,
                                       absl::Span<const std::byte> next, int element_size,
                                       absl::Span<std::byte> out);

// Turns `buffer`, which holds the base, into what the delta leads to. Differences are added, so a
// delta is applied once. INVALID_ARGUMENT: a header that is not one of this format or of another
// buffer; nothing was changed. DATA_LOSS: bytes that are cut off, too many, or no codes; the buffer
// is then partly changed and good for nothing. Nothing outside of the buffer is ever written.
absl::StatusOr<DeltaStats> ApplyDelta(absl::Span<const std::byte> coded,
                                      absl::Span<std::byte> buffer);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DELTA_CODEC_H_
