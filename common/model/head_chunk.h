// HeadChunkRows(): how many rows of logits the head computes at a time. The trainer's head and the
// memory plan use it.
#ifndef TANDEM_COMMON_MODEL_HEAD_CHUNK_H_
#define TANDEM_COMMON_MODEL_HEAD_CHUNK_H_

#include <algorithm>
#include <cstdint>

namespace tandem::model {

// Logits that exist at once, in float32: 64 MiB, on a GPU 1 GiB, whose products and launches need
// more rows. Depends on vocabulary and device alone, never on the batch.
inline constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;
inline constexpr int64_t kLogitsAtOnceOnGpu = int64_t{1} << 28;

// `vocab`: rows of the output projection on this rank.
inline int64_t HeadChunkRows(int64_t vocab, bool on_gpu) {
  const int64_t rows = (on_gpu ? kLogitsAtOnceOnGpu : kLogitsAtOnce) / vocab / 64 * 64;
  return std::clamp<int64_t>(rows, 64, on_gpu ? 8192 : 1024);
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_CHUNK_H_
