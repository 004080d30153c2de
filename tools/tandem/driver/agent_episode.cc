#include "tools/tandem/driver/agent_episode.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "tools/tandem/driver/recorded_episode.h"
#include "tools/tandem/environment/environment.h"

namespace tandem::driver {
namespace {

// What a session takes of a request's parameters.
rollout::v1::SamplingParams SessionSampling(const rollout::v1::SamplingParams& sampling) {
  rollout::v1::SamplingParams out = sampling;
  out.clear_n();
  out.clear_processed_logprobs();
  return out;
}

class AgentEpisode : public Episode {
 public:
  AgentEpisode(const Prompt& prompt, const EpisodeNumber& number, const AgentLimits& limits,
               AgentPlayer& player, RolloutFleet& fleet)
      : prompt_(prompt), number_(number), limits_(limits), player_(player), fleet_(fleet) {}

  bool plays_itself() const override { return true; }

  absl::StatusOr<Turn> FirstTurn() override {
    return absl::InternalError("an agent asks its rollout itself");
  }
  bool Continue(Completion /*completion*/, std::function<void()> /*ready*/) override {
    return true;
  }

  std::function<void()> Play(const rollout::v1::SamplingParams& sampling,
                             std::function<void()> ready) override {
    AgentPlayer::Request request;
    request.fleet = &fleet_;
    request.cost = limits_.max_tokens;
    *request.session.mutable_sampling() = SessionSampling(sampling);
    request.session.set_max_tokens(limits_.max_tokens);
    request.session.set_max_length(limits_.max_length);
    request.session.set_return_routed_experts(limits_.returns_experts);
    request.task.row = prompt_.fields;
    request.task.seed = number_.seed;
    request.task.sample = number_.sample;
    request.task.attempt = number_.attempt;
    return player_.Start(std::move(request), [this, ready](AgentPlayer::Played played) {
      played_ = std::move(played);
      ready();
    });
  }

  int64_t num_played_tokens() const override {
    int64_t count = 0;
    for (const rollout::v1::RecordedCall& call : played_.calls) count += call.token_ids_size();
    return count;
  }

  absl::StatusOr<std::optional<Turn>> NextTurn() override {
    if (played_.is_refused) return played_.run.status;
    const absl::Status made = MakeCompletion();
    if (made.ok()) {
      RETURN_IF_ERROR(TakeReward());
      return std::nullopt;
    }
    // Not a failure of the agent: it was cut off, or its rollout is stopping.
    if (absl::IsCancelled(made)) completion_.finish_reason = common::v1::FINISH_REASON_ABORTED;
    if (completion_.finish_reason == common::v1::FINISH_REASON_ABORTED) return std::nullopt;
    telemetry::LogWarning("an agent failed", {{"row", prompt_.row + 1},
                                              {"sample", number_.sample},
                                              {"attempt", number_.attempt},
                                              {"error", made.message()},
                                              {"stderr", played_.run.log}});
    return number_.attempt == 0 ? environment::MayPlayAgain(made) : environment::DropEpisode(made);
  }

  Completion Take() override { return std::move(completion_); }

 private:
  absl::Status MakeCompletion() {
    StepImages images;
    for (const std::string& file : played_.images) {
      ASSIGN_OR_RETURN(PromptImage kept, limits_.store->Keep(file));
      images.try_emplace(kept.digest, kept);
    }
    absl::StatusOr<Completion> completion =
        EpisodeOfCalls(played_.calls, played_.incarnation, images);
    if (completion.ok()) completion_ = *std::move(completion);
    RETURN_IF_ERROR(played_.run.status);
    RETURN_IF_ERROR(completion.status());
    if (completion_.finish_reason == common::v1::FINISH_REASON_ABORTED) {
      return absl::AbortedError("a call of the agent was aborted");
    }
    if (limits_.gives_reward && !played_.run.reward.has_value()) {
      return absl::InvalidArgumentError(
          "the agent gave no reward: reward.name environment takes the last JSON object that it "
          "writes to stdout, or answers, such as {\"reward\": 0.5}");
    }
    completion_.facts.environment_seconds = played_.seconds;
    completion_.replica = played_.replica;
    return absl::OkStatus();
  }

  absl::Status TakeReward() {
    if (!played_.run.reward.has_value()) return absl::OkStatus();
    if (!limits_.gives_reward) {
      return absl::InvalidArgumentError(
          absl::StrCat("the agent gave the reward ", *played_.run.reward,
                       ", but another reward judges its last completion; set "
                       "reward.name=environment to take the "
                       "agent's, or let it give none"));
    }
    completion_.segments.back().reward = *played_.run.reward;
    return absl::OkStatus();
  }

  const Prompt& prompt_;
  const EpisodeNumber number_;
  const AgentLimits limits_;
  AgentPlayer& player_;
  RolloutFleet& fleet_;
  AgentPlayer::Played played_;
  Completion completion_;
};

}  // namespace

std::unique_ptr<Episode> MakeAgentEpisode(const Prompt& prompt, const EpisodeNumber& number,
                                          const AgentLimits& limits, AgentPlayer& player,
                                          RolloutFleet& fleet) {
  return std::make_unique<AgentEpisode>(prompt, number, limits, player, fleet);
}

}  // namespace tandem::driver
