// HeadChunkRows(): how many rows of logits the head computes at a time. The trainer's head and the
// memory plan use it.
#ifndef TANDEM_COMMON_MODEL_HEAD_CHUNK_H_
#define TANDEM_COMMON_MODEL_HEAD_CHUNK_H_

#include <algorithm>
#include <cstdint>

namespace tandem::model {

// Logits that exist at once: 64 MiB in float32. Depends on the vocabulary alone, never on the
// batch.
inline constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

// `vocab`: rows of the output projection on this rank.
inline int64_t HeadChunkRows(int64_t vocab) {
  return std::clamp<int64_t>(kLogitsAtOnce / vocab / 64 * 64, 64, 1024);
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_CHUNK_H_
