// What the usage examples in services/trainer/algorithm leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_ALGORITHM_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_ALGORITHM_H_

#include <string>
#include <vector>

namespace tandem::trainer::algorithm_names {
extern config::v1::RunConfig config;
extern TrainingBatch batch;
extern ShardedModel& policy;
extern Optimizer& optimizer;
extern const comm::DeviceMesh& mesh;
extern Metrics metrics;
extern double learning_rate;
}  // namespace tandem::trainer::algorithm_names

namespace tandem::trainer::advantages_example {
using namespace algorithm_names;
}  // namespace tandem::trainer::advantages_example

namespace tandem::trainer::critic_example {
using namespace algorithm_names;
extern ShardedModel& model;
extern std::vector<std::string> skipped;
}  // namespace tandem::trainer::critic_example

namespace tandem::trainer::policy_loss_example {
using namespace algorithm_names;
extern at::Tensor logprobs, old_logprobs, advantages;
extern SequenceRows rows;
extern PolicyLossOptions options;
}  // namespace tandem::trainer::policy_loss_example

namespace tandem::trainer::policy_objective_example {
using namespace algorithm_names;
extern PolicyObjectiveOptions options;
extern MicroBatch micro_batch;
extern MicroBatchPlace place;
extern UpdateStatistics statistics;
extern DeferredValues later;
}  // namespace tandem::trainer::policy_objective_example

namespace tandem::trainer::deferred_values_example {
extern at::Tensor loss;
extern double total;
}  // namespace tandem::trainer::deferred_values_example

namespace tandem::trainer::preference_step_example {
using namespace algorithm_names;
extern ShardedModel& reference;
}  // namespace tandem::trainer::preference_step_example

namespace tandem::trainer::training_step_example {
using namespace algorithm_names;
extern ShardedModel* reference;
}  // namespace tandem::trainer::training_step_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_ALGORITHM_H_
