// What the usage examples in services/rollout/receive leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RECEIVE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RECEIVE_H_

#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout::rollout_owner_example {
extern RolloutOwner owner;
extern v1::BeginUpdateRequest request;
extern int64_t incarnation;
}  // namespace tandem::rollout::rollout_owner_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RECEIVE_H_
