// Validates unary requests before they are queued.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_VALIDATION_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_VALIDATION_H_

#include "absl/status/status.h"
#include "services/trainer/data/sample_validation.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// INVALID_ARGUMENT with a BadField, like ValidateSample().
absl::Status ValidateComputeLogProbs(const v1::ComputeLogProbsRequest& request,
                                     const SampleLimits& limits);

// Requires a request_id that rpc::CheckRequestId() accepts, a distinct name and addresses for every
// replica, and a version that is in range or -1.
absl::Status ValidatePublishWeights(const v1::PublishWeightsRequest& request);

// Requires a valid request_id, and enums with a name.
absl::Status ValidateSaveCheckpoint(const v1::SaveCheckpointRequest& request);

// Requires a valid request_id, and a version that is in range or -1.
absl::Status ValidateLoadCheckpoint(const v1::LoadCheckpointRequest& request);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_VALIDATION_H_
