#include "common/images/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tandem::images {
namespace {

// Values at distance `x` from the center, in the polynomial forms that LibTorch evaluates.
double Weight(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::kBilinear) return x < 1 ? 1 - x : 0;
  constexpr double kA = -0.5;
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
  return 0;
}

// How one side is resized: output i is the sum of weights[i * stride + j] * input[first[i] + j] for
// j < count[i], over 2^precision.
struct Taps {
  int64_t stride = 0;
  int precision = 0;
  std::vector<int64_t> first;
  std::vector<int64_t> count;
  std::vector<int16_t> weights;
};

Taps MakeTaps(int64_t input, int64_t output, Filter filter) {
  const double half_width = filter == Filter::kBilinear ? 1 : 2;
  const double scale = static_cast<double>(input) / static_cast<double>(output);
  // Shrinking widens the filter, so that every input pixel counts.
  const double support = scale >= 1 ? half_width * scale : half_width;
  const double inverse_scale = scale >= 1 ? 1 / scale : 1;
  Taps taps;
  taps.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.first.resize(output);
  taps.count.resize(output);
  std::vector<double> exact(output * taps.stride);
  double largest = 0;
  for (int64_t i = 0; i < output; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), input);
    const int64_t count = std::clamp<int64_t>(end - first, 0, taps.stride);
    double* weights = &exact[i * taps.stride];
    double total = 0;
    for (int64_t j = 0; j < count; ++j) {
      weights[j] = Weight(filter, (static_cast<double>(j + first) - center + 0.5) * inverse_scale);
      total += weights[j];
    }
    for (int64_t j = 0; j < count && total != 0; ++j) {
      weights[j] /= total;
      largest = std::max(largest, weights[j]);
    }
    taps.first[i] = first;
    taps.count[i] = count;
  }
  // As many bits as the largest weight leaves in 16.
  for (; taps.precision < 22; ++taps.precision) {
    if (static_cast<int64_t>(0.5 + largest * (1 << (taps.precision + 1))) >= 1 << 15) break;
  }
  taps.weights.resize(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double scaled = exact[i] * (1 << taps.precision);
    taps.weights[i] = static_cast<int16_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  return taps;
}

uint8_t Round(int32_t sum, int precision) {
  return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255));
}

Image ResizeWidth(const Image& image, int64_t width, Filter filter) {
  const Taps taps = MakeTaps(image.width, width, filter);
  Image out{image.height, width, std::vector<uint8_t>(image.height * width * 3)};
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = &image.rgb[y * image.width * 3];
    for (int64_t x = 0; x < width; ++x, to += 3) {
      const int16_t* weights = &taps.weights[x * taps.stride];
      const uint8_t* from = row + taps.first[x] * 3;
      int32_t sums[3];
      std::fill_n(sums, 3, 1 << (taps.precision - 1));
      for (int64_t j = 0; j < taps.count[x]; ++j, from += 3) {
        for (int c = 0; c < 3; ++c) sums[c] += weights[j] * from[c];
      }
      for (int c = 0; c < 3; ++c) to[c] = Round(sums[c], taps.precision);
    }
  }
  return out;
}

Image ResizeHeight(const Image& image, int64_t height, Filter filter) {
  const Taps taps = MakeTaps(image.height, height, filter);
  const int64_t row_bytes = image.width * 3;
  Image out{height, image.width, std::vector<uint8_t>(height * row_bytes)};
  std::vector<int32_t> sums(row_bytes);
  for (int64_t y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (taps.precision - 1));
    for (int64_t j = 0; j < taps.count[y]; ++j) {
      const int32_t weight = taps.weights[y * taps.stride + j];
      const uint8_t* from = &image.rgb[(taps.first[y] + j) * row_bytes];
      for (int64_t i = 0; i < row_bytes; ++i) sums[i] += weight * from[i];
    }
    uint8_t* to = &out.rgb[y * row_bytes];
    for (int64_t i = 0; i < row_bytes; ++i) to[i] = Round(sums[i], taps.precision);
  }
  return out;
}

}  // namespace

Image Resize(const Image& image, int64_t height, int64_t width, Filter filter) {
  // Rounded to bytes in between, width first, as LibTorch does.
  if (width == image.width)
    return height == image.height ? image : ResizeHeight(image, height, filter);
  Image out = ResizeWidth(image, width, filter);
  return height == image.height ? out : ResizeHeight(out, height, filter);
}

}  // namespace tandem::images
