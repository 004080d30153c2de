// What the usage examples in services/trainer/optim leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_OPTIM_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_OPTIM_H_

namespace tandem::trainer::lr_schedule_example {
extern config::v1::RunConfig config;
extern int64_t step, total_steps;
}  // namespace tandem::trainer::lr_schedule_example

namespace tandem::trainer::make_optimizer_example {
extern config::v1::RunConfig config;
extern ShardedModel& model;
extern const comm::DeviceMesh& mesh;
extern double learning_rate;
}  // namespace tandem::trainer::make_optimizer_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_OPTIM_H_
