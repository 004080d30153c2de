// What clients send to the trainer: the first byte says which message the rest is.
#include "services/trainer/data/sample_validation.h"
#include "services/trainer/service/request_validation.h"

namespace {

constexpr tandem::trainer::SampleLimits kLimits = {.vocab_size = 100,
                                                   .max_position_embeddings = 64};
constexpr tandem::trainer::SampleLimits kStrict = {.vocab_size = 100,
                                                   .max_position_embeddings = 64,
                                                   .needs_advantages = true,
                                                   .needs_rollout_logprobs = true,
                                                   .needs_baseline_reward = true,
                                                   .needs_reward_parts = true};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::trainer;  // NOLINT: the checks
  if (size == 0) return 0;
  const auto parse = [&](auto& message) {
    return message.ParseFromArray(data + 1, static_cast<int>(size - 1));
  };
  if (data[0] % 3 == 0) {
    v1::TrainStepRequest request;
    if (!parse(request)) return 0;
    (void)ValidateSample(request.sample(), "samples[0]", kLimits);
    (void)ValidateSample(request.sample(), "samples[0]", kStrict);
  } else if (data[0] % 3 == 1) {
    v1::ComputeLogProbsRequest request;
    if (parse(request)) (void)ValidateComputeLogProbs(request, kLimits);
  } else {
    v1::PublishWeightsRequest request;
    if (parse(request)) (void)ValidatePublishWeights(request);
  }
  return 0;
}
