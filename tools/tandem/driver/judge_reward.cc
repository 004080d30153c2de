// A judge as the source of a run's rewards.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/prompt_text.h"
#include "tools/tandem/driver/reward_source.h"
#include "tools/tandem/reward/judge.h"

namespace tandem::driver {
namespace {

class JudgeReward : public RewardSource {
 public:
  explicit JudgeReward(reward::JudgeOptions options) : judge_(std::move(options)) {}

  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) override {
    return judge_.Check(timeout, interrupted);
  }

  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override {
    std::vector<reward::JudgedText> texts;
    for (const auto& [prompt, completion] : completions) {
      reward::JudgedText& text = texts.emplace_back(reward::JudgedText{
          .prompt = PromptText(*prompt), .completion = completion->text, .answer = prompt->answer});
      if (!text.prompt.empty() || prompt->token_ids.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(RowName(*prompt),
                       ": expected a prompt of text or messages, which a judge reads; found "
                       "token ids"));
    }
    std::vector<Score> out;
    for (const absl::StatusOr<double>& reward : judge_.Score(texts)) {
      if (absl::IsCancelled(reward.status())) return reward.status();
      Score& score = out.emplace_back();
      if (reward.ok()) {
        score.reward = *reward;
      } else {
        score.failure = reward.status();
      }
    }
    return out;
  }

 private:
  reward::Judge judge_;
};

}  // namespace

std::unique_ptr<RewardSource> MakeJudgeReward(reward::JudgeOptions options) {
  return std::make_unique<JudgeReward>(std::move(options));
}

}  // namespace tandem::driver
