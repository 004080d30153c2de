// What the usage examples in services/trainer/service leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_SERVICE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_SERVICE_H_

#include <memory>
#include <vector>

#include "common/rpc/termination_signal.h"

namespace tandem::trainer::driver_lease_example {
extern int64_t incarnation;
extern v1::AcquireLeaseRequest request;
extern v1::TrainStepHeader header;
}  // namespace tandem::trainer::driver_lease_example

namespace tandem::trainer::leader_server_example {
extern LeaderServerOptions options;
extern TrainerEngine& engine;
extern RankPublisher& publisher;
extern std::vector<std::unique_ptr<ControlLink>> links;
extern rpc::TerminationSignal termination;
}  // namespace tandem::trainer::leader_server_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_SERVICE_H_
