// The sum of a row's exponentials, the basis of log-probs and sampling: the GPU version of
// kernels/exp_sum-inl.h. Head and sampler share it, so a token's log-prob has the same bits in
// both.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_EXP_SUM_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_EXP_SUM_CUH_

#include "common/model/kernels/cuda/device_math.cuh"

namespace tandem::model::cuda {

constexpr int kExpSumThreads = 1024;  // per block that sums a row
constexpr int kSumBlock = 512;        // like kernels/log_probs.h

__device__ inline float ExpWeight(float x, float maximum, float inverse_temperature) {
  return expf((x - maximum) * inverse_temperature);
}

// Returns the largest of x[0, size), or NaN if one is NaN. Every thread of a block of kExpSumThreads
// calls it and gets the result. `scratch`: see BlockMax().
__device__ inline float MaximumOfRow(const float* x, int64_t size, float* scratch) {
  constexpr int kAtOnce = 8;  // loads on their way: waiting for each costs most of the time
  float maximum = -INFINITY;
  int64_t i = threadIdx.x;
  for (; i + (kAtOnce - 1) * kExpSumThreads < size; i += kAtOnce * kExpSumThreads) {
    float values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) values[j] = x[i + j * kExpSumThreads];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) maximum = MaxOf(maximum, values[j]);
  }
  for (; i < size; i += kExpSumThreads) maximum = MaxOf(maximum, x[i]);
  return BlockMax(maximum, scratch);
}

// Returns the sum over i < size of weight(i), all non-negative: sums kSumBlock of them in float32,
// writes these sums to block_sums unless null, and adds them in float64. Every thread of a block of
// kExpSumThreads calls it and gets the sum; block_sums can then be read. `scratch`: see BlockSum().
template <typename Weight>
__device__ inline double SumOfWeights(int64_t size, const Weight& weight, double* block_sums,
                                      double* scratch) {
  constexpr int kSumWarps = kExpSumThreads / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t blocks = (size + kSumBlock - 1) / kSumBlock;
  double total = 0.0;  // over this warp's blocks, in lane 0
  // Which warp adds which blocks is fixed, so the order of the sum is too.
  for (int64_t block = threadIdx.x / kWarp; block < blocks; block += kSumWarps) {
    float sum = 0.0f;
    const int64_t begin = block * kSumBlock + lane;
    if ((block + 1) * kSumBlock <= size) {
      // All loads of a whole block are on their way at once.
      float weights[kSumBlock / kWarp];
#pragma unroll
      for (int j = 0; j < kSumBlock / kWarp; ++j) weights[j] = weight(begin + j * kWarp);
#pragma unroll
      for (int j = 0; j < kSumBlock / kWarp; ++j) sum += weights[j];
    } else {
      for (int64_t i = begin; i < size; i += kWarp) sum += weight(i);
    }
    sum = WarpSum(sum);
    if (lane == 0) {
      if (block_sums != nullptr) block_sums[block] = sum;
      total += sum;
    }
  }
  return BlockSum(total, scratch);
}

// Returns log softmax(logits * inverse_temperature) at an entry `logit` of a row with this maximum
// and sum.
__device__ inline float LogProb(float logit, float maximum, float inverse_temperature, double sum) {
  const double below = static_cast<double>(logit) - maximum;
  return static_cast<float>(below * inverse_temperature - log(sum));
}

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_EXP_SUM_CUH_
