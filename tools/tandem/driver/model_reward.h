// ModelReward: a reward model, served by a rollout, as the source of a run's rewards.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_MODEL_REWARD_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_MODEL_REWARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/reward_source.h"
#include "tools/tandem/driver/score_client.h"

namespace tandem::driver {

// A completion's reward is the logit of the model at the last token of prompt and completion.
//
// The ids are the policy's where both have the same tokenizer.json, or the reward model's is not known
// (reward.model.endpoint alone). Otherwise the text goes through the reward model's own tokenizer: a
// chat's messages and the completion as the assistant's through its chat template, other prompts
// followed by their completion.
class ModelReward : public RewardSource {
 public:
  // Reads the folder that `model` names, if any, and connects nowhere. INVALID_ARGUMENT and
  // UNIMPLEMENTED for a folder that is no reward model with one label, FAILED_PRECONDITION if the run's
  // prompts or episodes cannot be rendered for it. Once `interrupted`, which may be null, is true, calls
  // end with CANCELLED.
  static absl::StatusOr<std::unique_ptr<ModelReward>> Create(
      const config::v1::RunConfig& config, const config::v1::RewardModelConfig& model,
      std::function<bool()> interrupted);

  // A reward model without a run: Render() uses its own tokenizer, and there is no policy to fit. Errors of
  // Create() for a folder that is no reward model.
  static absl::StatusOr<std::unique_ptr<ModelReward>> CreateForTexts(
      const config::v1::RewardModelConfig& model, absl::Duration timeout,
      std::function<bool()> interrupted);

  // The folder to serve; empty: a rollout at the configured endpoint serves it.
  const std::string& path_to_serve() const { return path_to_serve_; }

  // Checks that the rollout at `address` (see ScoreClient) serves a reward model that fits the run, and
  // uses it from now on. `name`: of the reward model, for errors. Waits up to `timeout` for it; CANCELLED
  // soon after `interrupted` is true. Call before Judge().
  absl::Status Connect(const std::string& name, std::function<std::string()> address,
                       absl::Duration timeout, const std::function<bool()>& interrupted);

  // Connects to the configured endpoint, if there is one.
  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) override;
  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override;

  // The ids that the reward model's tokenizer gives for a prompt of text or messages and a completion.
  // FAILED_PRECONDITION without a tokenizer.
  absl::StatusOr<std::vector<uint32_t>> Render(const Prompt& prompt,
                                               const Completion& completion) const;
  // Scores whole sequences, after Connect() or Check().
  std::vector<Score> ScoreIds(std::vector<std::vector<uint32_t>> sequences);

 private:
  ModelReward(const config::v1::RewardModelConfig& model, absl::Duration timeout,
              std::function<bool()> interrupted);
  absl::Status ReadModel(const std::string& path) const;
  absl::Status ReadFolder(const config::v1::RunConfig& config, const std::string& path);
  absl::StatusOr<std::vector<uint32_t>> IdsOf(const Judged& judged) const;
  Score ScoreOf(const absl::StatusOr<rollout::v1::ScoreResponse>& response) const;

  std::string endpoint_;       // configured; empty: none
  std::string path_to_serve_;  // empty: none
  absl::Duration timeout_;
  int64_t policy_vocab_size_ = 0;
  int64_t longest_ = 0;  // tokens of prompt and completion
  std::function<bool()> interrupted_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // null: the policy's ids are used
  std::unique_ptr<ScoreClient> client_;              // null until Connect()
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_MODEL_REWARD_H_
