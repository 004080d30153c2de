// A tiny model, samples for it, and calls to a trainer.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_SERVICE_TRAINER_TEST_SUPPORT_H_
#define TANDEM_TESTS_SERVICES_TRAINER_SERVICE_TRAINER_TEST_SUPPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"

namespace tandem::trainer {

inline constexpr int64_t kVocabSize = 61;
inline constexpr int64_t kMaxLength = 48;

// A folder of its own under the test's temporary folder, empty.
std::string MakeFolder(const std::string& name);

// Writes the config.json of a Qwen2 model of two layers, sizes that ranks do not divide; no
// weights.
void WriteTinyModel(const std::string& folder);

// The defaults with a tiny random model in float32 and `folder`/run as run_dir.
config::v1::RunConfig TinyConfig(const std::string& folder);

// `groups` groups of `n` samples of random lengths, with rewards; the same for the same seed.
std::vector<common::v1::Sample> RandomSamples(int groups, int n, uint64_t seed);

// Calls to a trainer that answers at an address, each with a deadline.
class TrainerClient {
 public:
  explicit TrainerClient(const std::string& address);

  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo();
  absl::StatusOr<v1::TrainStepResponse> TrainStep(int64_t step, v1::Objective objective,
                                                  const std::vector<common::v1::Sample>& samples);
  absl::StatusOr<v1::TrainStepResponse> TrainStep(const v1::TrainStepHeader& header,
                                                  const std::vector<common::v1::Sample>& samples);
  // Log-probs of the samples' tokens, all sequences one after another.
  absl::StatusOr<std::vector<float>> LogProbs(const std::vector<common::v1::Sample>& samples);
  absl::StatusOr<v1::SaveCheckpointResponse> Save(const std::string& path,
                                                  v1::CheckpointFormat format);
  absl::StatusOr<v1::SaveCheckpointResponse> Save(const v1::SaveCheckpointRequest& request);
  absl::StatusOr<v1::LoadCheckpointResponse> Load(const std::string& path,
                                                  int64_t min_policy_version = 0);
  absl::StatusOr<v1::LoadCheckpointResponse> Load(const v1::LoadCheckpointRequest& request);

  v1::TrainerService::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<v1::TrainerService::Stub> stub_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_SERVICE_TRAINER_TEST_SUPPORT_H_
