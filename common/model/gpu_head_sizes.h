// The largest heads that attention on a GPU takes.
#ifndef TANDEM_COMMON_MODEL_GPU_HEAD_SIZES_H_
#define TANDEM_COMMON_MODEL_GPU_HEAD_SIZES_H_

#include <cstdint>

namespace tandem::model {

// Elements of keys and of values; of a latent without its rotated part.
inline constexpr int64_t kMaxHeadDimOnGpu = 512;
// Elements of a latent with its rotated part.
inline constexpr int64_t kMaxLatentDimOnGpu = 576;

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_GPU_HEAD_SIZES_H_
