// SampleOnDevice() for builds with CUDA.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "common/model/cuda_tensor.h"
#include "services/rollout/sampler/device_sampler.h"
#include "services/rollout/sampler/sample_job.h"
#include "services/rollout/sampler/sample_kernel.h"

namespace tandem::rollout {

bool SampleOnDevice(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                    absl::Span<SampledToken> out) {
  const int64_t vocab_size = logits.size(-1);
  if (vocab_size > cuda::kMostVocabulary) return false;
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return true;
  std::vector<cuda::SampleJob> jobs;
  jobs.reserve(count);
  for (const SampleRow& row : rows) jobs.push_back(cuda::JobOf(row, vocab_size));
  const c10::cuda::CUDAGuard guard(logits.device());
  cudaStream_t const stream = model::CurrentStream(logits.device());
  const auto job_bytes = count * static_cast<int64_t>(sizeof(cuda::SampleJob));
  const auto result_bytes = count * static_cast<int64_t>(sizeof(cuda::SampleResult));
  const auto bytes = at::TensorOptions(at::kByte).device(logits.device());
  const at::Tensor jobs_there = at::empty({job_bytes}, bytes);
  const at::Tensor results_there = at::empty({result_bytes}, bytes);
  C10_CUDA_CHECK(cudaMemcpyAsync(jobs_there.mutable_data_ptr(), jobs.data(), job_bytes,
                                 cudaMemcpyHostToDevice, stream));
  C10_CUDA_CHECK(cuda::LaunchSample(
      logits.const_data_ptr<float>(), vocab_size,
      static_cast<const cuda::SampleJob*>(jobs_there.const_data_ptr()), count,
      static_cast<cuda::SampleResult*>(results_there.mutable_data_ptr()), stream));
  std::vector<cuda::SampleResult> results(count);
  C10_CUDA_CHECK(cudaMemcpyAsync(results.data(), results_there.const_data_ptr(), result_bytes,
                                 cudaMemcpyDeviceToHost, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  for (int64_t i = 0; i < count; ++i) {
    out[i] = {results[i].id, results[i].logprob, results[i].processed_logprob};
  }
  return true;
}

}  // namespace tandem::rollout
