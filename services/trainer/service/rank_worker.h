// RankWorker: runs the leader's commands on one rank's engine. Every rank has one, including the
// leader.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_WORKER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/trainer/checkpoint/snapshot_writer.h"
#include "services/trainer/data/batch_images.h"
#include "services/trainer/service/rank_command.h"
#include "services/trainer/service/rank_publisher.h"
#include "services/trainer/service/trainer_engine.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// Encodes a training step's command: its header, the images, then the samples, length-delimited.
absl::StatusOr<std::string> EncodeTrainStep(const v1::TrainStepHeader& header,
                                            const std::vector<common::v1::Image>& images,
                                            const std::vector<common::v1::Sample>& samples);

// Threads: the collective thread. Turns LibTorch's exceptions into errors.
class RankWorker {
 public:
  // Engine and publisher outlive it.
  RankWorker(TrainerEngine& engine, RankPublisher& publisher, const config::v1::RunConfig& config);

  // Never throws. Before it returns a fatal result, it aborts the engine's group, so that the other
  // ranks do not wait for this one.
  RankResult Handle(const RankCommand& command);

 private:
  RankResult Run(const RankCommand& command);
  // For the images of a command.
  std::shared_ptr<BatchImages> MakeImages();
  RankResult TrainStep(const std::string& payload);
  RankResult ComputeLogProbs(const std::string& payload);
  RankResult Publish(const std::string& payload);
  RankResult Digest();
  RankResult Export(const std::string& path);
  RankResult Snapshot(const std::string& folder);
  RankResult TellSnapshotState(bool wait);
  RankResult VerifyShard(const std::string& folder);
  RankResult ReadShard(const std::string& folder);
  RankResult Reset();
  RankResult Reach(const std::string& payload);
  RankResult Probe(const std::string& payload);

  TrainerEngine& engine_;
  RankPublisher& publisher_;
  SnapshotWriter snapshot_writer_;
  const std::string model_path_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_WORKER_H_
