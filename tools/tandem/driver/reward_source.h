// RewardSource: where the rewards of completions come from: a built-in reward, a RewardService, a
// Python function, a judge or a reward model.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_REWARD_SOURCE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_REWARD_SOURCE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/reward/judge.h"
#include "tools/tandem/reward/python_reward.h"

namespace tandem::driver {

// A completion to score.
struct Judged {
  const Prompt* prompt;
  const Completion* completion;
};

// What a source says of a completion.
struct Score {
  std::optional<double> reward;       // from -1e9 to 1e9; none: the reward does not apply
  std::vector<double> token_rewards;  // the part of it that each token earned; empty: not told
  // Why a judge or a reward model gave no reward, although it applies: the group does not train.
  absl::Status failure;
};

// Thread-safe.
class RewardSource {
 public:
  virtual ~RewardSource() = default;

  // Finds out whether the reward can be asked. Waits up to `timeout` for a service, and returns
  // CANCELLED soon after `interrupted`, which may be null, is true.
  virtual absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) = 0;

  // Returns one score per completion. Completions of a prompt stand together. Errors name the row.
  virtual absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) = 0;
};

// INVALID_ARGUMENT for an unknown name or a bad pattern.
absl::StatusOr<std::unique_ptr<RewardSource>> MakeBuiltInReward(const std::string& name,
                                                                const std::string& pattern);
// Connects with the first call, which has the deadline `timeout` as all have.
std::unique_ptr<RewardSource> MakeServiceReward(const std::string& endpoint,
                                                absl::Duration timeout);
// The rewards that the environment gave for the turns of an episode.
std::unique_ptr<RewardSource> MakeEnvironmentReward();
std::unique_ptr<RewardSource> MakePythonReward(reward::PythonReward::Options options);
std::unique_ptr<RewardSource> MakeJudgeReward(reward::JudgeOptions options);

// For errors: "row 3 of the data set".
inline std::string RowName(const Prompt& prompt) {
  return absl::StrCat("row ", prompt.row + 1, " of the data set");
}

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_REWARD_SOURCE_H_
