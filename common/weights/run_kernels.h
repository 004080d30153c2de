// Copies and casts of runs: the work of one thread of a grid. weight_kernels.cu compiles it for the
// device. Casts round to nearest, ties to even; NaN: bfloat16 always yields 0x7FC0, float16 the
// quiet NaN of the same sign.
#ifndef TANDEM_COMMON_WEIGHTS_RUN_KERNELS_H_
#define TANDEM_COMMON_WEIGHTS_RUN_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/weights/host_device.h"
#include "common/weights/weight_runs.h"

namespace tandem::weights {

inline constexpr int kRunThreads = 256;

// 16 bytes moved by one load and store.
struct alignas(16) RunVector {
  uint64_t halves[2];
};

// The widest load that all addresses of the run are aligned for: 16, 8, 4, 2 or 1 bytes.
TANDEM_HOST_DEVICE inline int CopyWidth(const CopyRun& run) {
  uint64_t all = reinterpret_cast<uint64_t>(run.from) | reinterpret_cast<uint64_t>(run.to) |
                 static_cast<uint64_t>(run.size);
  if (run.repeat > 1) {
    all |= static_cast<uint64_t>(run.from_stride) | static_cast<uint64_t>(run.to_stride);
  }
  int width = 16;
  while (all % static_cast<uint64_t>(width) != 0) width /= 2;
  return width;
}

template <typename T>
TANDEM_HOST_DEVICE inline void CopyThreadOf(const CopyRun& run, int64_t thread,
                                            int64_t num_threads) {
  const int64_t per_run = run.size / static_cast<int64_t>(sizeof(T));
  for (int64_t i = thread; i < per_run * run.repeat; i += num_threads) {
    const int64_t number = run.repeat == 1 ? 0 : i / per_run;
    const int64_t at = i - number * per_run;
    reinterpret_cast<T*>(run.to + number * run.to_stride)[at] =
        reinterpret_cast<const T*>(run.from + number * run.from_stride)[at];
  }
}

// Performs the copies of thread `thread` of `num_threads`.
TANDEM_HOST_DEVICE inline void CopyThread(const CopyRun& run, int64_t thread, int64_t num_threads) {
  switch (CopyWidth(run)) {
    case 16:
      return CopyThreadOf<RunVector>(run, thread, num_threads);
    case 8:
      return CopyThreadOf<uint64_t>(run, thread, num_threads);
    case 4:
      return CopyThreadOf<uint32_t>(run, thread, num_threads);
    case 2:
      return CopyThreadOf<uint16_t>(run, thread, num_threads);
    default:
      return CopyThreadOf<uint8_t>(run, thread, num_threads);
  }
}

TANDEM_HOST_DEVICE constexpr uint16_t Bfloat16Bits(uint32_t bits) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

TANDEM_HOST_DEVICE constexpr uint16_t Float16Bits(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  // Values from 65520 on round to infinity.
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude >= 0x38800000u) {  // 2^-14: normal; the exponent's bias changes by 112
    const uint32_t rounded = magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // up to 2^-25: a tie is even
  // Subnormal: multiples of 2^-24.
  const uint32_t shift = 126u - (magnitude >> 23);  // 14 to 24
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t whole = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const uint32_t up = rest > half || (rest == half && (whole & 1) != 0) ? 1 : 0;
  return static_cast<uint16_t>(sign | (whole + up));
}

// Performs the casts of thread `thread` of `num_threads`.
TANDEM_HOST_DEVICE inline void CastThread(const CastRun& run, WireElement element, int64_t thread,
                                          int64_t num_threads) {
  for (int64_t i = thread; i < run.length * run.repeat; i += num_threads) {
    const int64_t number = run.repeat == 1 ? 0 : i / run.length;
    // Moves bits without arithmetic, so a NaN keeps its payload in float32.
    const uint32_t bits = reinterpret_cast<const uint32_t*>(
        run.from)[number * run.from_stride + (i - number * run.length)];
    if (element == WireElement::kFloat32) {
      reinterpret_cast<uint32_t*>(run.to)[i] = bits;
    } else {
      reinterpret_cast<uint16_t*>(run.to)[i] =
          element == WireElement::kBfloat16 ? Bfloat16Bits(bits) : Float16Bits(bits);
    }
  }
}

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RUN_KERNELS_H_
