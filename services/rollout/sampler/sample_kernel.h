// The sampler's CUDA kernel: sampler.cc's algorithm, with one thread block per token.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLE_KERNEL_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tandem::rollout::cuda {

// One token to draw; see SampleRow.
struct SampleJob {
  int64_t row = 0;
  double uniform = 0.0;
  double top_p = 1.0;
  double min_p = 0.0;
  int32_t top_k = 0;                 // 0: all
  float inverse_temperature = 1.0f;  // negative: greedy
};

// See SampledToken.
struct SampleResult {
  int32_t id;
  float logprob;
  float processed_logprob;
};

// Larger vocabularies exceed a block's shared memory.
inline constexpr int64_t kMostVocabulary = int64_t{1} << 21;

// logits: float32 [.., vocab], jobs and results [count], all on the device. Queues on `stream`,
// whose device is the current one.
cudaError_t LaunchSample(const float* logits, int64_t vocab, const SampleJob* jobs, int64_t count,
                         SampleResult* results, cudaStream_t stream);

}  // namespace tandem::rollout::cuda

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLE_KERNEL_H_
