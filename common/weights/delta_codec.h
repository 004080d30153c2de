// Deltas: the lossless element-wise difference between two versions of weights. delta_format.md
// describes the bytes.
//
//   // The sender has both versions, the receiver's buffer holds the base.
//   ASSIGN_OR_RETURN(DeltaStats sent, EncodeDelta(base, next, 2, out));
//   Send(out.first(sent.coded_bytes));
//   ASSIGN_OR_RETURN(DeltaStats got, ApplyDelta(coded, buffer));
//
// Designed for optimizer steps, which change a few percent of the elements, most by one unit in the
// last place. Each change then costs the entropy of its position plus a sign bit, within a few
// percent. A delta is never larger than the raw bytes plus a header: if it would be, or if more
// than three quarters of the elements change, it is dense, a copy. It contains no digest; the
// receiver compares the weights' digests.
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

  // Fraction of elements that changed, 0 to 1.
  double density() const { return elements == 0 ? 0 : static_cast<double>(changed) / elements; }
};

// Upper bound on the delta of two buffers of `size_bytes`.
constexpr int64_t MaxEncodedBytes(int64_t size_bytes) { return kDeltaHeaderBytes + size_bytes; }

// Writes the delta from `base` to `next` to the first coded_bytes of `out` and may overwrite the
// bytes behind them. Elements have 2 or 4 bytes and need no alignment. Allocates nothing; `out`
// must not overlap the inputs. INVALID_ARGUMENT: the sizes differ or are not whole elements, or
// `out` is smaller than MaxEncodedBytes().
absl::StatusOr<DeltaStats> EncodeDelta(absl::Span<const std::byte> base,
                                       absl::Span<const std::byte> next, int element_size,
                                       absl::Span<std::byte> out);

// Turns `buffer`, which holds the base, into the next version. Adds differences, so apply each
// delta only once. INVALID_ARGUMENT: the header is malformed or for another buffer; nothing
// changed. DATA_LOSS: the bytes are truncated, too long or malformed; the buffer is partly changed
// and unusable. Never writes outside the buffer.
absl::StatusOr<DeltaStats> ApplyDelta(absl::Span<const std::byte> coded,
                                      absl::Span<std::byte> buffer);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DELTA_CODEC_H_
