// Constants of the additive digest (additive_digest.h), the same on all devices.
#ifndef TANDEM_COMMON_WEIGHTS_ADDITIVE_DIGEST_CONSTANTS_H_
#define TANDEM_COMMON_WEIGHTS_ADDITIVE_DIGEST_CONSTANTS_H_

#include <cstdint>

#include "common/weights/host_device.h"

namespace tandem::weights {

inline constexpr int64_t kDigestWordBytes = 4;
// A block's factors, 8 KiB for both lanes, stay in a core's first-level cache.
inline constexpr int64_t kDigestBlockWords = 1024;

// Keep the inputs for blocks and sizes disjoint from those for word factors.
inline constexpr uint64_t kDigestBlockSeed = uint64_t{1} << 62;
inline constexpr uint64_t kDigestSizeSeed = uint64_t{2} << 62;

// The output function of splitmix64, a bijection.
TANDEM_HOST_DEVICE constexpr uint64_t DigestMix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// x[lane][place]: the factor of a word by its position in its block; odd.
TANDEM_HOST_DEVICE constexpr uint32_t DigestWordFactor(uint64_t lane, uint64_t place) {
  return static_cast<uint32_t>(DigestMix(lane * kDigestBlockWords + place) >> 32) | 1;
}

// m[lane](block): the factor of a block; odd.
TANDEM_HOST_DEVICE constexpr uint64_t DigestBlockFactor(uint64_t lane, uint64_t block) {
  return DigestMix(kDigestBlockSeed + 2 * block + lane) | 1;
}

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_ADDITIVE_DIGEST_CONSTANTS_H_
