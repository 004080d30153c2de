#include "common/model/rotary_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::model {
namespace {

// Returns theta^(2i / dim) for each pair, each step in float32.
std::vector<float> Powers(double theta, int64_t dim) {
  std::vector<float> powers(dim / 2);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[i] = std::pow(static_cast<float>(theta), exponent);
  }
  return powers;
}

// Stretches waves longer than the original context by the factor, leaves those well inside alone,
// and blends the two in between.
float Llama3Frequency(const Llama3RopeScaling& scaling, float frequency) {
  const double context = static_cast<double>(scaling.original_max_position_embeddings);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength > context / scaling.low_freq_factor) {
    return static_cast<float>(frequency / scaling.factor);
  }
  if (wavelength < context / scaling.high_freq_factor) return frequency;
  const double smooth = (context / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * frequency / scaling.factor + smooth * frequency);
}

double DynamicTheta(const RopeSpec& rope, int64_t dim, int64_t length) {
  const DynamicRopeScaling& scaling = *rope.dynamic;
  if (length <= scaling.original_max_position_embeddings) return rope.theta;
  const double growth = scaling.factor * static_cast<double>(length) /
                            static_cast<double>(scaling.original_max_position_embeddings) -
                        (scaling.factor - 1.0);
  return rope.theta * std::pow(growth, static_cast<double>(dim) / static_cast<double>(dim - 2));
}

std::vector<float> YarnFrequencies(const RopeSpec& rope, int64_t dim) {
  const YarnRopeScaling& yarn = *rope.yarn;
  // The dimension that turns `rotations` times within the original context.
  const auto dimension = [&](double rotations) {
    return static_cast<double>(dim) *
           std::log(static_cast<double>(yarn.original_max_position_embeddings) /
                    (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = dimension(yarn.beta_fast);
  double high = dimension(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  std::vector<float> frequencies = Powers(rope.theta, dim);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float power = frequencies[i];
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float kept = 1.0f - ramp;
    frequencies[i] =
        1.0f / (static_cast<float>(yarn.factor) * power) * (1.0f - kept) + 1.0f / power * kept;
  }
  return frequencies;
}

}  // namespace

int64_t RotaryDim(const RopeSpec& rope, int64_t head_dim) {
  return rope.rotary_dim > 0 ? rope.rotary_dim : head_dim;
}

RotaryFrequencies FrequenciesOf(const RopeSpec& rope, int64_t head_dim, int64_t length) {
  const int64_t dim = RotaryDim(rope, head_dim);
  if (rope.yarn.has_value()) return {YarnFrequencies(rope, dim), rope.attention_factor};
  RotaryFrequencies out{
      Powers(rope.dynamic.has_value() ? DynamicTheta(rope, dim, length) : rope.theta, dim),
      rope.attention_factor};
  if (rope.longrope.has_value()) {
    const LongRopeScaling& scaling = *rope.longrope;
    const bool is_long = length > scaling.original_max_position_embeddings;
    const std::vector<double>& factors = is_long ? scaling.long_factor : scaling.short_factor;
    for (size_t i = 0; i < out.inverse.size(); ++i) {
      out.inverse[i] = 1.0f / (static_cast<float>(factors[i]) * out.inverse[i]);
    }
    out.attention_factor = is_long ? scaling.long_mscale : scaling.short_mscale;
    return out;
  }
  for (float& frequency : out.inverse) {
    frequency = 1.0f / frequency;
    frequency /= static_cast<float>(rope.linear_factor);
    if (rope.llama3.has_value()) frequency = Llama3Frequency(*rope.llama3, frequency);
  }
  if (rope.num_turning > 0) {
    std::fill(out.inverse.begin() + rope.num_turning, out.inverse.end(), 0.0f);
  }
  return out;
}

bool DependsOnLength(const RopeSpec& rope) {
  return rope.dynamic.has_value() || rope.longrope.has_value();
}

int64_t OriginalLength(const RopeSpec& rope) {
  if (rope.dynamic.has_value()) return rope.dynamic->original_max_position_embeddings;
  if (rope.longrope.has_value()) return rope.longrope->original_max_position_embeddings;
  return 0;
}

int64_t LongestGeneration(const ModelSpec& spec) {
  int64_t longest = spec.max_position_embeddings;
  for (const RopeSpec& rope : spec.ropes) {
    if (DependsOnLength(rope)) longest = std::min(longest, OriginalLength(rope));
  }
  return longest;
}

}  // namespace tandem::model
