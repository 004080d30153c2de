// A built-in reward as the source of a run's rewards.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rewards/reward_range.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/reward_source.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::driver {
namespace {

class BuiltInReward : public RewardSource {
 public:
  explicit BuiltInReward(reward::RewardFn fn) : fn_(std::move(fn)) {}

  absl::Status Check(absl::Duration /*timeout*/,
                     const std::function<bool()>& /*interrupted*/) override {
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override {
    std::vector<Score> out;
    for (const auto& [prompt, completion] : completions) {
      const absl::StatusOr<double> reward =
          fn_({completion->text, prompt->answer, FinishReasonName(completion->finish_reason)});
      if (!reward.ok()) return StatusBuilder(reward.status()) << RowName(*prompt);
      if (!rewards::IsReward(*reward)) {
        return absl::InvalidArgumentError(
            absl::StrCat(RowName(*prompt), ": its reward: ", rewards::ExpectedReward(*reward)));
      }
      out.push_back({.reward = *reward, .token_rewards = {}});
    }
    return out;
  }

 private:
  const reward::RewardFn fn_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RewardSource>> MakeBuiltInReward(const std::string& name,
                                                                const std::string& pattern) {
  ASSIGN_OR_RETURN(reward::RewardFn fn, reward::FindReward(name, {.pattern = pattern}));
  return std::make_unique<BuiltInReward>(std::move(fn));
}

}  // namespace tandem::driver
