// Sampling randomness as a function of seed, sample index and position: a request's samples do not
// depend on what else runs, and two samples of a group never share a draw.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_UNIFORM_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_UNIFORM_H_

#include <cstdint>

namespace tandem::rollout {

// Stafford's mix 13 of splitmix64: every input bit affects every output bit.
inline uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Returns a value in [0, 1), a multiple of 2^-53. `position` is the sampled token's index in its
// completion.
inline double Uniform(uint64_t seed, int64_t sample_index, int64_t position) {
  const uint64_t bits = MixBits(MixBits(MixBits(seed) ^ static_cast<uint64_t>(sample_index)) ^
                                static_cast<uint64_t>(position));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_UNIFORM_H_
