// What an EnvironmentService or an agent gave for an episode, as its reward.
#include "absl/strings/str_cat.h"
#include "tools/tandem/driver/reward_source.h"

namespace tandem::driver {
namespace {

// The reward is the sum over the turns; each turn's is on its last token.
class EnvironmentReward : public RewardSource {
 public:
  absl::Status Check(absl::Duration, const std::function<bool()>&) override {
    return absl::OkStatus();  // the environment is checked for itself
  }

  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override {
    std::vector<Score> out;
    for (const Judged& judged : completions) {
      if (judged.completion->segments.empty()) {
        return absl::InternalError(absl::StrCat(
            RowName(*judged.prompt), ": reward.name environment, but no environment played it"));
      }
      Score score{.reward = 0, .token_rewards = {}};
      score.token_rewards.resize(judged.completion->token_ids.size());
      int64_t end = 0;
      for (const EpisodeSegment& segment : judged.completion->segments) {
        end += segment.num_tokens;
        if (segment.kind != common::v1::SEGMENT_KIND_SAMPLED) continue;
        *score.reward += segment.reward;
        score.token_rewards[end - 1] = segment.reward;
      }
      out.push_back(std::move(score));
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<RewardSource> MakeEnvironmentReward() {
  return std::make_unique<EnvironmentReward>();
}

}  // namespace tandem::driver
