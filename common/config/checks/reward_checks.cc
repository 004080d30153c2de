#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/config/checks/checks.h"
#include "common/config/load.h"
#include "common/config/summary.h"

namespace tandem::config {
namespace {

constexpr double kMaxWeight = 1e9;
constexpr int64_t kMaxJudgeRetries = 100;

// The section reward.judge at `key`, in which unset values have their defaults.
void CheckJudge(const v1::JudgeConfig& judge, const std::string& key, Checker* check) {
  if (judge.url().empty()) {
    check->Fail(key + ".url",
                "expected the judge's base URL, such as http://127.0.0.1:8000/v1, found none");
  }
  if (judge.model().empty()) {
    check->Fail(key + ".model",
                "expected the name of the model that the judge's server has, found none");
  }
  if (!judge.template_().empty() && !judge.template_file().empty()) {
    check->Fail(key + ".template_file",
                absl::StrCat("set one of template_file and ", key, ".template"));
  }
  check->Integer(key + ".max_tokens", judge.max_tokens(), 1);
  check->AtLeastZero(key + ".temperature", judge.temperature());
  check->Integer(key + ".retries", judge.retries(), 0, kMaxJudgeRetries);
  check->Integer(key + ".concurrency", judge.concurrency(), 1, kMaxWorkers);
  if (judge.api_key_env().empty()) {
    check->Fail(key + ".api_key_env", "expected the name of an environment variable, found none");
  }
  check->Number(key + ".scale", judge.scale(), std::abs(judge.scale()) <= kMaxWeight,
                "from -1e9 to 1e9");
}

// The sections judge and model of a reward, each of which is for the reward of its name. `judge` and
// `model` have the defaults that are not set.
void CheckRewardSections(const std::string& name, const v1::JudgeConfig& judge, bool sets_judge,
                         const v1::RewardModelConfig& model, const std::string& key,
                         Checker* check) {
  if (name == "judge") {
    CheckJudge(judge, key + ".judge", check);
  } else if (sets_judge) {
    check->Fail(key + ".judge", absl::StrCat("needs ", key, ".name judge"));
  }
  const bool sets_model = !model.path().empty() || !model.endpoint().empty();
  if (!model.endpoint().empty()) check->Address(key + ".model.endpoint", model.endpoint());
  if (name == "model" && !sets_model) {
    check->Fail(
        key + ".model.path",
        "expected the folder of a reward model, or the endpoint of a rollout that serves one");
  } else if (name != "model" && sets_model) {
    check->Fail(key + ".model", absl::StrCat("needs ", key, ".name model"));
  }
}

// The keys that say which reward is used, of the section at `key`.
template <typename Reward>
void CheckRewardChoice(const Reward& reward, const std::string& key, Checker* check) {
  if (!reward.endpoint().empty()) check->Address(key + ".endpoint", reward.endpoint());
  if (reward.name() == "service" && reward.endpoint().empty()) {
    check->Fail(key + ".endpoint",
                absl::StrCat("expected HOST:PORT, because ", key, ".name is service"));
  }
  if (!reward.function().empty() && reward.path().empty()) {
    check->Fail(key + ".function", absl::StrCat("needs ", key, ".path, the file of the function"));
  }
}

void CheckWeightedReward(const v1::WeightedReward& reward, const std::string& key, Checker* check) {
  CheckRewardChoice(reward, key, check);
  v1::JudgeConfig judge = DefaultRunConfig().reward().judge();
  judge.MergeFrom(reward.judge());
  CheckRewardSections(reward.name(), judge, reward.has_judge(), reward.model(), key, check);
  const bool is_service =
      !reward.endpoint().empty() && (reward.name().empty() || reward.name() == "service");
  const int choices = (reward.name().empty() ? 0 : 1) + (reward.path().empty() ? 0 : 1) +
                      (reward.endpoint().empty() ? 0 : 1);
  if (choices != 1 && !(is_service && reward.path().empty())) {
    check->Fail(key, absl::StrCat("expected one of name (a built-in reward), path (a Python file) "
                                  "and endpoint (a RewardService), found ",
                                  choices == 0 ? "none" : "several"));
  }
  check->Number(key + ".weight", reward.weight(), std::abs(reward.weight()) <= kMaxWeight,
                "from -1e9 to 1e9");
}

}  // namespace

void CheckOverlongBuffer(const v1::RunConfig& config, Checker* check) {
  const v1::OverlongBufferConfig& buffer = config.reward().overlong_buffer();
  check->AtLeastZero("reward.overlong_buffer.penalty_factor", buffer.penalty_factor());
  if (!buffer.enable()) return;
  check->Integer("reward.overlong_buffer.len", buffer.len(), 1, LongestCompletion(config));
}

void CheckReward(const v1::RewardConfig& reward, Checker* check) {
  // The default counts as none: another choice need not unset it.
  const bool has_other_name =
      !reward.name().empty() && reward.name() != DefaultRunConfig().reward().name();
  if (reward.name().empty() && reward.path().empty() && reward.endpoint().empty() &&
      reward.rewards_size() == 0) {
    check->Fail(
        "reward.name",
        "expected the name of a reward, found none, and no reward.path, endpoint or rewards");
  }
  CheckRewardChoice(reward, "reward", check);
  const bool sets_judge =
      reward.judge().SerializeAsString() != DefaultRunConfig().reward().judge().SerializeAsString();
  CheckRewardSections(reward.path().empty() && reward.rewards().empty() ? reward.name() : "",
                      reward.judge(), sets_judge, reward.model(), "reward", check);
  if (!reward.path().empty() && has_other_name) {
    check->Fail("reward.path", absl::StrCat("reward.name is ", reward.name(),
                                            "; set one of the two, or both in reward.rewards"));
  }
  if (reward.rewards_size() > 0 && (has_other_name || !reward.path().empty() ||
                                    !reward.endpoint().empty() || !reward.pattern().empty())) {
    check->Fail("reward.rewards",
                "expected every reward in this list, found one in reward.name, path, endpoint or "
                "pattern too");
  }
  for (int i = 0; i < reward.rewards_size(); ++i) {
    CheckWeightedReward(reward.rewards(i), absl::StrFormat("reward.rewards[%d]", i), check);
  }
  if (reward.python().empty()) {
    check->Fail("reward.python", "expected a Python interpreter, found none");
  }
  check->Integer("reward.workers", reward.workers(), 1, kMaxWorkers);
  check->Seconds("reward.timeout_s", reward.timeout_s());
}

bool HasReward(const v1::RewardConfig& reward, absl::string_view name) {
  if (reward.rewards().empty()) return reward.name() == name && reward.path().empty();
  return std::any_of(reward.rewards().begin(), reward.rewards().end(),
                     [name](const v1::WeightedReward& part) { return part.name() == name; });
}

}  // namespace tandem::config
