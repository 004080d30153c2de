// Converts a SampleRow to a job of the CUDA sampler kernel.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLE_JOB_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLE_JOB_H_

#include <cstdint>

#include "common/model/kernels/log_probs.h"
#include "services/rollout/sampler/sample_kernel.h"
#include "services/rollout/sampler/sampler.h"

namespace tandem::rollout::cuda {

inline SampleJob JobOf(const SampleRow& row, int64_t vocab_size) {
  const FilterParams& params = row.params;
  SampleJob job;
  job.row = row.row;
  job.uniform = row.uniform;
  job.top_p = params.top_p;
  job.min_p = params.min_p;
  job.top_k = params.top_k < vocab_size ? static_cast<int32_t>(params.top_k) : 0;
  if (params.temperature == 0.0) {
    job.inverse_temperature = -1.0f;
  } else if (params.temperature != 1.0) {
    job.inverse_temperature = model::kernels::InverseTemperature(params.temperature);
  }
  return job;
}

}  // namespace tandem::rollout::cuda

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLE_JOB_H_
