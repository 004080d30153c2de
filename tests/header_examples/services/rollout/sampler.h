// What the usage examples in services/rollout/sampler leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SAMPLER_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SAMPLER_H_

#include "services/rollout/sampler/sampler.h"
#include "services/rollout/sampler/uniform.h"

namespace tandem::rollout::logit_adjustments_example {
extern PenaltyParams params;
extern std::vector<int32_t> prompt_ids;
extern SampledToken token;
extern float* logits;
extern int64_t vocab_size;
}  // namespace tandem::rollout::logit_adjustments_example

namespace tandem::rollout::sampler_example {
extern uint64_t seed;
extern int64_t index, position, vocab_size;
extern at::Tensor logits;
}  // namespace tandem::rollout::sampler_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SAMPLER_H_
