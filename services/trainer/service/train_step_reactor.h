// One TrainStep call: reads the header, the samples and their images, validates each on arrival, and
// queues the step.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAIN_STEP_REACTOR_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAIN_STEP_REACTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/rpc/samples_digest.h"
#include "services/trainer/data/received_images.h"
#include "services/trainer/service/command_queue.h"
#include "services/trainer/service/trainer_leader.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"

namespace tandem::trainer {

// Owns itself: deleted when gRPC is done with the call. gRPC calls its methods one at a time; the
// collective thread uses it last, with Finish().
class TrainStepReactor final : public grpc::ServerReadReactor<v1::TrainStepRequest> {
 public:
  TrainStepReactor(grpc::CallbackServerContext* context, TrainerLeader& leader, CommandQueue& queue,
                   v1::TrainStepResponse* response);

  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  // OK: continue reading. Sets `submitted_` if the step can be queued without further samples.
  absl::Status TakeHeader();
  absl::Status TakeSample();
  absl::Status TakeImage();
  absl::Status CheckComplete(const std::string& digest) const;
  void Submit(std::optional<StepSamples> samples);

  grpc::CallbackServerContext* const context_;
  TrainerLeader& leader_;
  CommandQueue& queue_;
  v1::TrainStepResponse* const response_;
  v1::TrainStepRequest message_;
  std::optional<v1::TrainStepHeader> header_;
  SampleLimits limits_;  // set once there is a header
  std::vector<common::v1::Sample> samples_;
  ReceivedImages images_;
  rpc::SamplesDigest digest_;
  absl::flat_hash_set<std::string> sample_ids_;
  int64_t num_tokens_ = 0;
  bool submitted_ = false;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAIN_STEP_REACTOR_H_
