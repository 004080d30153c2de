// What the usage examples in services/rollout/runner leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RUNNER_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RUNNER_H_

#include <vector>

namespace tandem::rollout::forward_pass_example {
extern model::Transformer model;
extern model::PagedKvCache cache;
extern model::ParameterProvider& params;
extern at::Tensor token_ids, positions;
extern std::vector<model::PagedSequence> sequences;
}  // namespace tandem::rollout::forward_pass_example

namespace tandem::rollout::model_runner_example {
extern model::Transformer model;
extern model::PagedKvCacheOptions cache_options;
extern Sequence sequence;
extern model::ParameterProvider& arena;
extern CacheCopies copies;
}  // namespace tandem::rollout::model_runner_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RUNNER_H_
