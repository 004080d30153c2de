// What the usage examples in services/rollout/service leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SERVICE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SERVICE_H_

namespace tandem::rollout::replica_ranks_example {
extern config::v1::RunConfig config;
extern comm::LaunchEnvironment environment;
extern at::Device device;
extern std::string description, address;
}  // namespace tandem::rollout::replica_ranks_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SERVICE_H_
