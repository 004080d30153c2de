// Reduces the ranks' parts of a tensor in rank order, so that the result has the same bits wherever
// it is computed.
#ifndef TANDEM_COMMON_COMM_REDUCE_KERNELS_H_
#define TANDEM_COMMON_COMM_REDUCE_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace tandem::comm {

inline constexpr size_t kMaxReduceSources = 64;

enum class ReduceType { kFloat, kDouble, kBFloat16, kInt8, kUInt8, kInt32, kInt64 };
enum class ReduceKind { kSum, kMax, kMin };

// out[i] = sources[0][i] + sources[1][i] + ..., or their maximum or minimum, for i < numel. Sums
// bfloat16 in float32 and rounds once. NaN propagates. `out` may be one of the sources.
void Reduce(ReduceKind kind, ReduceType type, absl::Span<const void* const> sources, void* out,
            int64_t numel);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_REDUCE_KERNELS_H_
