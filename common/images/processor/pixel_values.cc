#include "common/images/processor/pixel_values.h"

namespace tandem::images {

ByteValues MakeByteValues(const PreprocessorConfig& config) {
  ByteValues values;
  // With both, transformers folds the factor into mean and deviation, in float32.
  const float inverse = static_cast<float>(1.0 / config.rescale_factor);
  const float factor = static_cast<float>(config.rescale_factor);
  for (int c = 0; c < 3; ++c) {
    float mean = static_cast<float>(config.image_mean[c]);
    float deviation = static_cast<float>(config.image_std[c]);
    if (config.do_rescale) {
      mean *= inverse;
      deviation *= inverse;
    }
    for (int byte = 0; byte < 256; ++byte) {
      const float value = static_cast<float>(byte);
      values[c][byte] = config.do_normalize ? (value - mean) / deviation : value * factor;
    }
  }
  return values;
}

void AppendPlanes(const Image& image, const ByteValues& values, std::vector<float>* out) {
  const int64_t pixels = image.height * image.width;
  const size_t begin = out->size();
  out->resize(begin + 3 * pixels);
  float* to = out->data() + begin;
  for (int c = 0; c < 3; ++c) {
    for (int64_t i = 0; i < pixels; ++i) *to++ = values[c][image.rgb[3 * i + c]];
  }
}

void AppendPatches(const Image& image, const ByteValues& values, const PreprocessorConfig& config,
                   std::vector<float>* out) {
  const int64_t patch = config.patch_size;
  const int64_t block = patch * config.merge_size;
  const size_t begin = out->size();
  out->resize(begin + 3 * image.height * image.width * config.temporal_patch_size);
  float* to = out->data() + begin;
  const auto append_patch = [&](int64_t top, int64_t left) {
    for (int c = 0; c < 3; ++c) {
      for (int64_t frame = 0; frame < config.temporal_patch_size; ++frame) {
        for (int64_t y = top; y < top + patch; ++y) {
          const uint8_t* from = &image.rgb[3 * (y * image.width + left) + c];
          for (int64_t x = 0; x < patch; ++x) *to++ = values[c][from[3 * x]];
        }
      }
    }
  };
  for (int64_t y = 0; y < image.height; y += block) {
    for (int64_t x = 0; x < image.width; x += block) {
      for (int64_t row = y; row < y + block; row += patch) {
        for (int64_t column = x; column < x + block; column += patch) append_patch(row, column);
      }
    }
  }
}

}  // namespace tandem::images
