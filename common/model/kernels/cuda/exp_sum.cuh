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
    for (int j = lane; j < kSumBlock; j += kWarp) {
      const int64_t i = block * kSumBlock + j;
      if (i < size) sum += weight(i);
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
