// What is done to weights where they lie, as lists of runs: one description for the CPU, for a
// device's kernels and for the tests that compare the two. Addresses are those of the place where
// the work is done.
#ifndef TANDEM_COMMON_WEIGHTS_WEIGHT_RUNS_H_
#define TANDEM_COMMON_WEIGHTS_WEIGHT_RUNS_H_

#include <cstddef>
#include <cstdint>

namespace tandem::weights {

// `repeat` runs of `size` bytes; run i goes from from + i * from_stride to to + i * to_stride. What
// is written overlaps nothing else of the list.
struct CopyRun {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t size = 0;
  int64_t repeat = 1;
  int64_t from_stride = 0;  // bytes; of one run without meaning
  int64_t to_stride = 0;
};

// What float32 elements become on the wire.
enum class WireElement { kFloat32, kBfloat16, kFloat16 };

constexpr int64_t WireElementBytes(WireElement element) {
  return element == WireElement::kFloat32 ? 4 : 2;
}

// `repeat` runs of `length` elements; run i is read from from + i * from_stride elements, and
// written right after run i - 1, in wire type, from `to` on.
struct CastRun {
  const float* from = nullptr;
  std::byte* to = nullptr;
  int64_t length = 0;
  int64_t repeat = 1;
  int64_t from_stride = 0;  // elements; of one run without meaning
};

// Rows of a tensor that lie one after another from `bytes` on: row i has `row_bytes` bytes, from
// byte offset + i * stride of the tensor. Adds to sum `slot` of those that the list is for.
struct DigestRun {
  const std::byte* bytes = nullptr;
  int64_t offset = 0;
  int64_t stride = 0;  // of one row without meaning
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int32_t slot = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_WEIGHT_RUNS_H_
