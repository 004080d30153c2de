// The rewards that a configuration names: one, or the weighted ones of reward.rewards.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_REWARD_PARTS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_REWARD_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::driver {

// reward.name of a run that rewards nothing.
inline constexpr char kNoReward[] = "none";
// reward.name: what the EnvironmentService or the agent gave.
inline constexpr char kEnvironmentReward[] = "environment";
// reward.name: a language model behind an OpenAI-compatible URL.
inline constexpr char kJudgeReward[] = "judge";
// reward.name: a model with a classification head.
inline constexpr char kModelReward[] = "model";

struct RewardPart {
  std::string key;    // of the configuration: "reward", "reward.rewards[1]"
  std::string label;  // in metrics; unique
  double weight = 1;
  // One of the three:
  std::string name;      // built in
  std::string path;      // a Python file
  std::string endpoint;  // a RewardService
  std::string pattern;   // of the reward regex
  std::string function;  // in `path`; empty: found by its parameters
  // Of the names judge and model; values that are not set have their defaults.
  config::v1::JudgeConfig judge;
  config::v1::RewardModelConfig model;
};

// A label is the name of a built-in reward, `service`, or the Python file's name without ".py"; a
// second one of the same name ends in _2.
std::vector<RewardPart> RewardParts(const config::v1::RewardConfig& config);

// The run's reward in the names of metrics: the only part's label, or "weighted_sum".
std::string RewardLabel(const config::v1::RewardConfig& config);

// Whether a reward runs in Python processes, which write into the run's logs.
bool RunsPython(const config::v1::RewardConfig& config);

// Whether one of the rewards reads the messages of a chat's prompt, not the text that the policy's
// template renders from them.
bool ReadsMessages(const config::v1::RewardConfig& config);

// A reward that sees no images.
struct BlindReward {
  std::string key;  // of the configuration; empty: there is none
  bool is_judge = false;
};
// The first of them: a judge without judge.images, or a reward model.
BlindReward RewardWithoutSight(const config::v1::RewardConfig& config);

// The key of the first judge that sees images. Empty: there is none.
std::string RewardWithSight(const config::v1::RewardConfig& config);

// Whether a group may be left without a reward: a judge or a reward model may fail.
bool MayFail(const config::v1::RewardConfig& config);

// Whether one of the rewards compares with the answers of rows, so that each row needs one. Python
// functions and services read whole rows.
bool NeedsAnswer(const config::v1::RewardConfig& config);

// Returns the check of a row's answer by every reward that compares with it; errors name the key of
// the reward.
reward::AnswerCheck AnswerCheckOf(const config::v1::RewardConfig& config);

// INVALID_ARGUMENT for a name that is neither a built-in reward nor `service`, `environment`, `judge`
// or `model`, nor `none` as the only one: the message begins with the key and lists the known names.
absl::Status CheckRewardNames(const config::v1::RewardConfig& config);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_REWARD_PARTS_H_
