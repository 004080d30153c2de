#include "tools/tandem/driver/rewarder.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/rewards/reward_range.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/model_reward.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/reward_source.h"

namespace tandem::driver {
namespace {

struct Part {
  RewardPart config;
  std::unique_ptr<RewardSource> source;
};

// The sum of the parts' rewards times their weights.
class WeightedRewarder : public Rewarder {
 public:
  // Keeps each part's scores beside the sum if `keeps_parts`.
  WeightedRewarder(std::vector<Part> parts, bool keeps_parts)
      : parts_(std::move(parts)), keeps_parts_(keeps_parts) {}

  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) override {
    for (const Part& part : parts_) {
      const absl::Status status = part.source->Check(timeout, interrupted);
      if (absl::IsCancelled(status)) return status;
      if (!status.ok()) {
        return absl::Status(status.code(), absl::StrCat(part.config.key, ": ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  std::vector<ServedFolder> served_folders() const override {
    std::vector<ServedFolder> out;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto* const model = dynamic_cast<const ModelReward*>(parts_[i].source.get());
      if (model == nullptr || model->path_to_serve().empty()) continue;
      out.push_back({NameOfPart(i), parts_[i].config.key + ".model", model->path_to_serve()});
    }
    return out;
  }

  absl::Status Connect(const AddressOfServed& address_of,
                       const std::function<bool()>& interrupted) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      auto* const model = dynamic_cast<ModelReward*>(parts_[i].source.get());
      if (model == nullptr || model->path_to_serve().empty()) continue;
      const absl::Status status = model->Connect(
          absl::StrCat("the reward model ", model->path_to_serve()),
          [address_of, name = NameOfPart(i)] { return address_of(name); }, kRewardServiceWait,
          interrupted);
      if (status.ok()) continue;
      if (absl::IsCancelled(status)) return status;
      return absl::Status(status.code(),
                          absl::StrCat(parts_[i].config.key, ": ", status.message()));
    }
    return absl::OkStatus();
  }

  absl::Status Judge(std::vector<Group>& groups) override {
    std::vector<Judged> judged;
    std::vector<Completion*> completions;
    std::vector<Group*> owners;
    for (Group& group : groups) {
      group.judgement = absl::OkStatus();
      group.num_failed_judgements = 0;
      for (Completion* completion : group.judged()) {
        judged.push_back({&group.prompt, completion});
        completions.push_back(completion);
        owners.push_back(&group);
        completion->score = 0;
        completion->part_scores.clear();
        completion->part_weights.clear();
        completion->token_rewards.clear();
      }
    }
    std::vector<bool> is_scored(judged.size());
    for (const Part& part : parts_) {
      ASSIGN_OR_RETURN(const std::vector<Score> scores, part.source->Judge(judged));
      for (size_t i = 0; i < judged.size(); ++i) {
        if (!scores[i].failure.ok()) {
          if (owners[i]->num_failed_judgements++ > 0) continue;
          owners[i]->judgement = StatusBuilder(scores[i].failure)
                                 << RowName(*judged[i].prompt) << ", " << part.config.key;
        }
        if (!scores[i].reward.has_value()) continue;
        is_scored[i] = true;
        Add(scores[i], part.config.weight, *completions[i]);
        if (!keeps_parts_) continue;
        completions[i]->part_scores[part.config.label] = *scores[i].reward;
        completions[i]->part_weights[part.config.label] = part.config.weight;
      }
    }
    for (size_t i = 0; i < judged.size(); ++i) {
      if (!owners[i]->judgement.ok()) continue;
      RETURN_IF_ERROR(CheckSum(*judged[i].prompt, is_scored[i], completions[i]->score));
      completions[i]->reward = completions[i]->score;
    }
    return absl::OkStatus();
  }

 private:
  static std::string NameOfPart(size_t part) { return absl::StrCat("reward-model-", part); }

  static void Add(const Score& score, double weight, Completion& completion) {
    completion.score += weight * *score.reward;
    if (score.token_rewards.empty()) return;
    completion.token_rewards.resize(score.token_rewards.size());
    for (size_t i = 0; i < score.token_rewards.size(); ++i) {
      completion.token_rewards[i] += weight * score.token_rewards[i];
    }
  }

  static absl::Status CheckSum(const Prompt& prompt, bool is_scored, double sum) {
    if (!is_scored) {
      return absl::InvalidArgumentError(absl::StrCat(
          RowName(prompt), ": expected a number from a reward function; every one returned None"));
    }
    if (rewards::IsReward(sum)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        RowName(prompt), ": its reward, the weighted sum: ", rewards::ExpectedReward(sum)));
  }

  const std::vector<Part> parts_;
  const bool keeps_parts_;
};

absl::StatusOr<std::unique_ptr<RewardSource>> MakeSource(const RewardPart& part,
                                                         const config::v1::RunConfig& config,
                                                         const std::string& log_path,
                                                         const std::function<bool()>& interrupted) {
  const config::v1::RewardConfig& reward = config.reward();
  const absl::Duration timeout = absl::Seconds(reward.timeout_s());
  if (!part.path.empty()) {
    return MakePythonReward({.function = {.python = reward.python(),
                                          .path = part.path,
                                          .name = part.function,
                                          .log_path = log_path},
                             .prompt_key = config.data().prompt_key(),
                             .max_workers = reward.workers(),
                             .timeout = timeout});
  }
  if (part.name == kNoReward) {
    return absl::InvalidArgumentError(absl::StrCat(
        part.key, ".name: expected a reward, found ", kNoReward,
        ", which is only for tandem sft and tandem dpo, whose evaluations can do with the loss"));
  }
  if (part.name == kEnvironmentReward) {
    const config::v1::EnvironmentName environment = config.environment().name();
    if (environment != config::v1::ENVIRONMENT_NAME_SERVICE &&
        environment != config::v1::ENVIRONMENT_NAME_AGENT) {
      return absl::InvalidArgumentError(
          absl::StrCat(part.key,
                       ".name: environment needs environment.name service or agent, whose "
                       "rewards it takes"));
    }
    return MakeEnvironmentReward();
  }
  if (part.name == kJudgeReward) {
    ASSIGN_OR_RETURN(reward::JudgeOptions options,
                     reward::MakeJudgeOptions(part.judge, part.key, timeout));
    options.interrupted = interrupted;
    return MakeJudgeReward(std::move(options));
  }
  if (part.name == kModelReward) {
    absl::StatusOr<std::unique_ptr<ModelReward>> model =
        ModelReward::Create(config, part.model, interrupted);
    RETURN_IF_ERROR(io::AtPlace(part.key + ".model", model.status()));
    return *std::move(model);
  }
  if (!part.name.empty()) return MakeBuiltInReward(part.name, part.pattern);
  if (part.endpoint.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(part.key,
                                                   ".endpoint: expected HOST:PORT, because ",
                                                   part.key, ".name is service; found nothing"));
  }
  return MakeServiceReward(part.endpoint, timeout);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rewarder>> Rewarder::Create(const config::v1::RunConfig& config,
                                                           const std::string& log_path,
                                                           std::function<bool()> interrupted) {
  RETURN_IF_ERROR(CheckRewardNames(config.reward()));
  std::vector<Part> parts;
  for (RewardPart& part : RewardParts(config.reward())) {
    ASSIGN_OR_RETURN(std::unique_ptr<RewardSource> source,
                     MakeSource(part, config, log_path, interrupted));
    parts.push_back({std::move(part), std::move(source)});
  }
  return std::make_unique<WeightedRewarder>(std::move(parts), config.reward().rewards_size() > 0);
}

}  // namespace tandem::driver
