// Lists of runs that describe in-place work on weights, shared by the CPU, the device kernels and
// the tests that compare the two. Addresses are valid on the device that does the work.
#ifndef TANDEM_COMMON_WEIGHTS_WEIGHT_RUNS_H_
#define TANDEM_COMMON_WEIGHTS_WEIGHT_RUNS_H_

#include <cstddef>
#include <cstdint>

namespace tandem::weights {

// `repeat` runs of `size` bytes; run i goes from from + i * from_stride to to + i * to_stride. A
// run's destination must not overlap any other memory of the list.
struct CopyRun {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t size = 0;
  int64_t repeat = 1;
  int64_t from_stride = 0;  // bytes; ignored for one run
  int64_t to_stride = 0;
};

// Wire type that float32 elements are cast to.
enum class WireElement { kFloat32, kBfloat16, kFloat16 };

constexpr int64_t WireElementBytes(WireElement element) {
  return element == WireElement::kFloat32 ? 4 : 2;
}

// `repeat` runs of `length` elements. Run i is read from from + i * from_stride elements; the
// outputs, in wire type, are contiguous from `to` on.
struct CastRun {
  const float* from = nullptr;
  std::byte* to = nullptr;
  int64_t length = 0;
  int64_t repeat = 1;
  int64_t from_stride = 0;  // elements; ignored for one run
};

// Tensor rows stored contiguously at `bytes`: row i has `row_bytes` bytes and starts at byte offset
// + i * stride of the tensor. Adds to sum `slot` of the list's sums.
struct DigestRun {
  const std::byte* bytes = nullptr;
  int64_t offset = 0;
  int64_t stride = 0;  // ignored for one row
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int32_t slot = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_WEIGHT_RUNS_H_
