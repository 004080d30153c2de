// A warp's 16 x 16 elements of a product of bfloat16 matrices, accumulated in float32: on tensor
// cores if the device supports bfloat16 on them, else by the lanes, eight elements each.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_WARP_TILE_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_WARP_TILE_CUH_

#include <cuda_bf16.h>

#include "common/model/kernels/cuda/device_math.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TANDEM_TENSOR_CORES 1
#include <mma.h>
#else
#define TANDEM_TENSOR_CORES 0
#endif

namespace tandem::model::cuda {

constexpr int kWarpTile = 16;

// Every lane of a warp has one and calls the same members with the same arguments. A lane holds the
// same elements in all tiles.
class WarpTile {
 public:
#if TANDEM_TENSOR_CORES
  using Sums =
      nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kWarpTile, kWarpTile, kWarpTile, float>;

  __device__ void Clear() { nvcuda::wmma::fill_fragment(sums_, 0.0f); }

  // Adds a b^T over 16 of k, in one step. a, b: 16 rows each, `stride` elements apart, a multiple
  // of 8; aligned to 32 bytes.
  __device__ void Multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, int stride) {
    namespace wmma = nvcuda::wmma;
    wmma::fragment<wmma::matrix_a, kWarpTile, kWarpTile, kWarpTile, __nv_bfloat16, wmma::row_major>
        left;
    wmma::fragment<wmma::matrix_b, kWarpTile, kWarpTile, kWarpTile, __nv_bfloat16, wmma::col_major>
        right;
    wmma::load_matrix_sync(left, a, stride);
    wmma::load_matrix_sync(right, b, stride);
    wmma::mma_sync(sums_, left, right, sums_);
  }

  __device__ void Add(const WarpTile& other) {
    for (int i = 0; i < Sums::num_elements; ++i) sums_.x[i] += other.sums_.x[i];
  }

  // Writes row by row to `to`, 256 elements aligned to 32 bytes; other lanes see it after a
  // barrier.
  __device__ void Store(float* to) const {
    nvcuda::wmma::store_matrix_sync(to, sums_, kWarpTile, nvcuda::wmma::mem_row_major);
  }

 private:
  Sums sums_;
#else
  __device__ void Clear() {
    for (float& sum : sums_) sum = 0.0f;
  }

  __device__ void Multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, int stride) {
    for (int i = 0; i < kOfLane; ++i) {
      const __nv_bfloat16* const row = a + Place(i) / kWarpTile * stride;
      const __nv_bfloat16* const column = b + Place(i) % kWarpTile * stride;
      for (int k = 0; k < kWarpTile; ++k) {
        sums_[i] = fmaf(ToFloat(row[k]), ToFloat(column[k]), sums_[i]);
      }
    }
  }

  __device__ void Add(const WarpTile& other) {
    for (int i = 0; i < kOfLane; ++i) sums_[i] += other.sums_[i];
  }

  __device__ void Store(float* to) const {
    for (int i = 0; i < kOfLane; ++i) to[Place(i)] = sums_[i];
  }

 private:
  static constexpr int kOfLane = kWarpTile * kWarpTile / kWarp;
  __device__ static int Place(int i) { return static_cast<int>(threadIdx.x) % kWarp * kOfLane + i; }

  float sums_[kOfLane];
#endif
};

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_WARP_TILE_CUH_
