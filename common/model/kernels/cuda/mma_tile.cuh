// Tiles of 16 x 16 for products of bfloat16 matrices in shared memory, accumulated in float32 in
// registers. Unlike WarpTile (warp_tile.cuh), a lane knows which elements it holds, so rows can be scaled
// where they are, and one side is loaded once for products with several others.
//
// They are the tensor cores' instructions ldmatrix and mma.m16n8k16. Devices without them, and tests on
// a CPU, do with exchanges among lanes what the instructions do, for the same parts in the same lanes.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_MMA_TILE_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_MMA_TILE_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "common/model/kernels/cuda/device_math.cuh"

namespace tandem::model::cuda {

constexpr int kMmaTile = 16;

// Four matrices of 8 x 8, whose rows' addresses, aligned to 16 bytes, the lanes have: lane 8 m + r that
// of row r of matrix m. Lane 4 g + t gets of each the elements 2 t and 2 t + 1 of row g; `kTransposed`:
// of column g.
struct MmaParts {
  unsigned at[4];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

template <bool kTransposed>
__device__ inline MmaParts LoadMatrices(const __nv_bfloat16* row) {
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  MmaParts parts;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(parts.at[0]), "=r"(parts.at[1]), "=r"(parts.at[2]), "=r"(parts.at[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(parts.at[0]), "=r"(parts.at[1]), "=r"(parts.at[2]), "=r"(parts.at[3])
                 : "r"(from)
                 : "memory");
  }
  return parts;
}

// Adds a product of [16, 16] and [16, 8]. a: the parts of rows 0-7 and 8-15 of its first 8 columns, then
// of the others. b0, b1: transposed, of its first 8 rows and of the others. sums: elements 2 t and
// 2 t + 1 of row g, then of row g + 8.
__device__ inline void MultiplyAdd(const MmaParts& a, unsigned b0, unsigned b1, float* sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
}

#else

template <bool kTransposed>
__device__ inline MmaParts LoadMatrices(const __nv_bfloat16* row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto mine = reinterpret_cast<unsigned long long>(row);
  const auto bits = [](const __nv_bfloat16* from) {
    return static_cast<unsigned>(*reinterpret_cast<const unsigned short*>(from));
  };
  MmaParts parts;
  for (int m = 0; m < 4; ++m) {
    const int pair = lane % 4 * 2;
    unsigned low, high;
    if constexpr (kTransposed) {
      const auto first = __shfl_sync(kAllLanes, mine, 8 * m + pair);
      const auto second = __shfl_sync(kAllLanes, mine, 8 * m + pair + 1);
      low = bits(reinterpret_cast<const __nv_bfloat16*>(first) + lane / 4);
      high = bits(reinterpret_cast<const __nv_bfloat16*>(second) + lane / 4);
    } else {
      const auto of_row = __shfl_sync(kAllLanes, mine, 8 * m + lane / 4);
      low = bits(reinterpret_cast<const __nv_bfloat16*>(of_row) + pair);
      high = bits(reinterpret_cast<const __nv_bfloat16*>(of_row) + pair + 1);
    }
    parts.at[m] = high << 16 | low;
  }
  return parts;
}

__device__ inline void MultiplyAdd(const MmaParts& a, unsigned b0, unsigned b1, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto joined = [](unsigned low, unsigned high) {
    return static_cast<unsigned long long>(high) << 32 | low;
  };
  const auto number = [](unsigned long long bits, int i) {
    return __uint_as_float(static_cast<unsigned>(bits >> (16 * i) & 0xFFFF) << 16);
  };
  for (int t = 0; t < 4; ++t) {
    // Columns 2 t and 2 t + 1 of both rows, and those behind the first 8.
    const auto near = __shfl_sync(kAllLanes, joined(a.at[0], a.at[1]), lane / 4 * 4 + t);
    const auto far = __shfl_sync(kAllLanes, joined(a.at[2], a.at[3]), lane / 4 * 4 + t);
    for (int column = 0; column < 2; ++column) {
      const auto b = __shfl_sync(kAllLanes, joined(b0, b1), (lane % 4 * 2 + column) * 4 + t);
      for (int row = 0; row < 2; ++row) {
        float& sum = sums[2 * row + column];
        for (int i = 0; i < 2; ++i) {
          sum = fmaf(number(near, 2 * row + i), number(b, i), sum);
          sum = fmaf(number(far, 2 * row + i), number(b, 2 + i), sum);
        }
      }
    }
  }
}

#endif

// Of a left side, 16 rows. In all functions `stride` is that from row to row in elements, a multiple
// of 8.
__device__ inline MmaParts LoadLeft(const __nv_bfloat16* rows, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return LoadMatrices<false>(rows + lane % 16 * stride + lane / 16 * 8);
}

// Of a right side, [16 of the sum, 16 columns].
__device__ inline MmaParts LoadRight(const __nv_bfloat16* rows, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return LoadMatrices<true>(rows + lane % 16 * stride + lane / 16 * 8);
}

// Of a right side that lies transposed, [16 columns, 16 of the sum].
__device__ inline MmaParts LoadRightTransposed(const __nv_bfloat16* columns, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return LoadMatrices<false>(columns + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}

// Every lane of a warp has one and calls the same members with the same arguments.
class MmaTile {
 public:
  __device__ void Clear() {
    for (float& sum : sums_) sum = 0.0f;
  }

  __device__ void Multiply(const MmaParts& left, const MmaParts& right) {
    MultiplyAdd(left, right.at[0], right.at[1], sums_);
    MultiplyAdd(left, right.at[2], right.at[3], sums_ + 4);
  }

  __device__ void Add(const MmaTile& other) {
    for (int i = 0; i < 8; ++i) sums_[i] += other.sums_[i];
  }

  // factors: [16], of the rows.
  __device__ void ScaleRows(const float* factors) {
    const float upper = factors[Row()];
    const float lower = factors[Row() + 8];
    for (int i = 0; i < 8; ++i) sums_[i] *= i % 4 < 2 ? upper : lower;
  }

  // Writes to [16][16], aligned to 8 bytes; other lanes see it after a barrier.
  __device__ void Store(float* to) const {
    using Pair = Pack<float, 2>;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = Row() + i % 2 * 8;
      *reinterpret_cast<Pair*>(to + row * kMmaTile + column + i / 2 * 8) =
          Pair{sums_[2 * i], sums_[2 * i + 1]};
    }
  }

 private:
  __device__ static int Row() { return static_cast<int>(threadIdx.x) % kWarp / 4; }

  float sums_[8];  // those of the left 8 columns, then of the right
};

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_MMA_TILE_CUH_
