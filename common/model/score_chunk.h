// How many scores ChunkedAttention() has at once: for the operation and for planners.
#ifndef TANDEM_COMMON_MODEL_SCORE_CHUNK_H_
#define TANDEM_COMMON_MODEL_SCORE_CHUNK_H_

#include <cstdint>

namespace tandem::model {

// 256 MiB in float32, several times in the backward pass.
inline constexpr int64_t kScoresAtOnce = int64_t{1} << 26;

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SCORE_CHUNK_H_
