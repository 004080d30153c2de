// A user's Python function as the source of a run's rewards.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rewards/reward_range.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/reward_source.h"

namespace tandem::driver {
namespace {

class PythonRewardSource : public RewardSource {
 public:
  explicit PythonRewardSource(reward::PythonReward::Options options)
      : reward_(std::move(options)) {}

  absl::Status Check(absl::Duration /*timeout*/,
                     const std::function<bool()>& /*interrupted*/) override {
    return reward_.Check();
  }

  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override {
    std::vector<reward::PythonGroup> groups;
    const Prompt* last = nullptr;
    for (const auto& [prompt, completion] : completions) {
      if (prompt != last) groups.push_back(GroupOf(*prompt));
      last = prompt;
      groups.back().completions.push_back(completion->text);
      groups.back().completion_ids.push_back(completion->token_ids);
    }
    ASSIGN_OR_RETURN(const std::vector<reward::OptionalRewards> scored, reward_.Score(groups));
    std::vector<Score> out;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const std::optional<double>& reward : scored[g]) {
        if (reward.has_value() && !rewards::IsReward(*reward)) {
          return absl::InvalidArgumentError(
              absl::StrCat(groups[g].name, ": its reward: ", rewards::ExpectedReward(*reward)));
        }
        out.push_back({.reward = reward, .token_rewards = {}});
      }
    }
    return out;
  }

 private:
  static reward::PythonGroup GroupOf(const Prompt& prompt) {
    return {.name = RowName(prompt),
            .prompt = prompt.text,
            .answer = prompt.answer,
            .row = prompt.fields,
            .prompt_ids = prompt.token_ids};
  }

  reward::PythonReward reward_;
};

}  // namespace

std::unique_ptr<RewardSource> MakePythonReward(reward::PythonReward::Options options) {
  return std::make_unique<PythonRewardSource>(std::move(options));
}

}  // namespace tandem::driver
