// The slopes of ALiBi (2108.12409): how much a head's scores fall with each token of distance.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ALIBI_H_
#define TANDEM_COMMON_MODEL_KERNELS_ALIBI_H_

#include <cmath>
#include <cstdint>

// Kernels on a GPU call it too.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

namespace tandem::model {

// Adds slope * scale * (key position - query position) to scores.
struct Alibi {
  double scale = 0.0;      // 0: adds nothing
  int64_t num_heads = 0;   // of the model, on which the slopes depend
  int64_t first_head = 0;  // of the tensors at hand
};

// Returns the slope of head `head`, counted in the tensors at hand, times the scale. The heads up to
// the largest power of two have slopes 2^(-8 (i + 1) / power); the others take those of twice as
// many heads that lie between.
TANDEM_HOST_DEVICE inline float SlopeOf(const Alibi& alibi, int64_t head) {
  if (alibi.scale == 0.0) return 0.0f;
  int64_t power = 1;
  while (2 * power <= alibi.num_heads) power *= 2;
  const int64_t i = alibi.first_head + head;
  const double eighths =
      i < power ? static_cast<double>(i + 1) : static_cast<double>(2 * (i - power) + 1) / 2.0;
  return static_cast<float>(alibi.scale * exp2(-8.0 * eighths / static_cast<double>(power)));
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_KERNELS_ALIBI_H_
