// The inverse frequencies of a rotary position embedding (2104.09864) with its scaling, as
// transformers computes them in float32: a position multiplies the last bit of a frequency.
//
//   const RotaryFrequencies f = FrequenciesOf(spec.ropes[0], 128, /*length=*/0);
//   // cos(position * f.inverse[i]) * f.attention_factor
#ifndef TANDEM_COMMON_MODEL_ROTARY_FREQUENCIES_H_
#define TANDEM_COMMON_MODEL_ROTARY_FREQUENCIES_H_

#include <cstdint>
#include <vector>

#include "common/model/layers/rope_spec.h"
#include "common/model/model_spec.h"

namespace tandem::model {

struct RotaryFrequencies {
  std::vector<float> inverse;     // [rotary_dim / 2]
  double attention_factor = 1.0;  // multiplies cosines and sines
};

// The elements of a head that rotate.
int64_t RotaryDim(const RopeSpec& rope, int64_t head_dim);

// The frequencies for a sequence of `length` tokens. The length counts only if DependsOnLength();
// 0 stands for one of at most the original length.
RotaryFrequencies FrequenciesOf(const RopeSpec& rope, int64_t head_dim, int64_t length);

// Whether a sequence beyond OriginalLength() has other frequencies than a shorter one (rope types
// "dynamic" and "longrope"). Transformers chooses by the length of the whole sequence, so the
// frequencies of all its tokens change when it grows beyond.
bool DependsOnLength(const RopeSpec& rope);
int64_t OriginalLength(const RopeSpec& rope);

// Returns the longest sequence whose tokens rotate alike however many of them exist yet; longer
// ones can be scored, but not generated token by token: keys in the cache would have to change.
// max_position_embeddings if no rope depends on the length.
int64_t LongestGeneration(const ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROTARY_FREQUENCIES_H_
