// The serving side of one WeightService.ReadWeights call.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_READ_WEIGHTS_CALL_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_READ_WEIGHTS_CALL_H_

#include <grpcpp/support/server_callback.h>

#include "services/rollout/receive/weight_receiver.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

// Starts the call; the reactor owns itself. The receiver's thread copies a message's bytes, so no
// update touches them meanwhile, and only after gRPC has taken the previous message: a slow reader
// costs one message plus what flow control allows. `receiver` must outlive the call.
grpc::ServerWriteReactor<v1::ReadWeightsResponse>* StartReadWeights(
    WeightReceiver& receiver, const v1::ReadWeightsRequest& request);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_READ_WEIGHTS_CALL_H_
