// Shared by the kernels: loads and stores of several elements at once, and sums over the threads of
// a warp or a block in a fixed order.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_DEVICE_MATH_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_DEVICE_MATH_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace tandem::model::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void FromFloat(float x, float& out) { out = x; }
__device__ inline void FromFloat(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }

// 1 / (1 + exp(-x)), without overflow: the exponent is never positive.
__device__ inline float Sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// N elements that one access moves.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

// Elements in 16 bytes.
template <typename T>
constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));

// Loads kPackOf<T> elements, of which the row has `count` left; zeros beyond them. kWhole: all are
// in the row, and aligned. Either way a thread gets the same elements, so sums over threads have
// one order.
template <typename T, bool kWhole>
__device__ inline Pack<T, kPackOf<T>> LoadPack(const T* from, int64_t count) {
  if constexpr (kWhole) {
    return *reinterpret_cast<const Pack<T, kPackOf<T>>*>(from);
  } else {
    Pack<T, kPackOf<T>> pack;
    for (int i = 0; i < kPackOf<T>; ++i) {
      if (i < count) {
        pack.at[i] = from[i];
      } else {
        FromFloat(0.0f, pack.at[i]);
      }
    }
    return pack;
  }
}
template <typename T, bool kWhole>
__device__ inline void StorePack(const Pack<T, kPackOf<T>>& pack, T* to, int64_t count) {
  if constexpr (kWhole) {
    *reinterpret_cast<Pack<T, kPackOf<T>>*>(to) = pack;
  } else {
    for (int i = 0; i < kPackOf<T> && i < count; ++i) to[i] = pack.at[i];
  }
}

inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// Every lane gets the result. All lanes get the same bits: in each step both lanes of a pair add
// the same two numbers.
__device__ inline float WarpSum(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ inline double WarpSum(double x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
// Returns NaN if either value is NaN.
__device__ inline float MaxOf(float a, float b) { return a > b || a != a ? a : b; }
__device__ inline float WarpMax(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = MaxOf(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}

// Combines x over a block of whole warps, at most 32 of them; every thread calls it and gets the
// result. `scratch`: 32 elements that nothing else uses until the caller's next __syncthreads().
template <typename T, typename Combine>
__device__ inline T BlockCombine(T x, T* scratch, T nothing, Combine combine) {
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  x = combine(x);
  __syncthreads();  // waits for the scratch's earlier readers
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return combine(lane < warps ? scratch[lane] : nothing);
}
template <typename T>
__device__ inline T BlockSum(T x, T* scratch) {
  return BlockCombine(x, scratch, T{0}, [](T v) { return WarpSum(v); });
}
__device__ inline float BlockMax(float x, float* scratch) {
  return BlockCombine(x, scratch, -INFINITY, [](float v) { return WarpMax(v); });
}

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_DEVICE_MATH_CUH_
