#include "tools/tandem/bench/episode_workload.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace tandem::bench {
namespace {

using driver::RolloutFleet;

// Longer than any run; a turn that hangs fails sooner, by the fleet's own deadline.
constexpr absl::Duration kLongestPlay = absl::Minutes(30);

struct Episode {
  std::vector<uint32_t> token_ids;  // so far
  int64_t turns_left = 0;
  bool has_begun = false;
  std::string replica;
};

// What a play has counted.
struct Played {
  double seconds = 0;
  int64_t returning_tokens = 0;  // of prompts of turns after the first
  int64_t cached_tokens = 0;     // of those
};

// Plays episodes of one play. The thread that calls Play() is the environment: it sends a turn when its
// observation is due, so that no episode waits for another one's.
class Player {
 public:
  Player(RolloutFleet& fleet, TorchRandint& randint, const EpisodeWorkload& workload)
      : fleet_(fleet), randint_(randint), workload_(workload), state_(std::make_shared<State>()) {}

  absl::StatusOr<Played> Play() {
    std::vector<Episode> episodes(workload_.episodes);
    for (Episode& episode : episodes) {
      episode.token_ids = randint_.Draw(workload_.prompt_tokens);
      episode.turns_left = workload_.turns;
    }
    const absl::Time start = absl::Now();
    const absl::Time deadline = start + kLongestPlay;
    for (size_t i = 0; i < episodes.size(); ++i) Send(episodes[i], i);
    for (size_t left = episodes.size(); left > 0;) {
      Turn turn;
      {
        absl::MutexLock lock(&state_->mu);
        const bool has_turn = state_->mu.AwaitWithDeadline(
            absl::Condition(
                +[](State* state) { return !state->turns.empty(); }, state_.get()),
            deadline);
        if (!has_turn) return GiveUp(absl::DeadlineExceededError("no turn within 30 minutes"));
        turn = std::move(state_->turns.front());
        state_->turns.pop_front();
      }
      if (!turn.group.ok()) return GiveUp(turn.group.status());
      Episode& episode = episodes[turn.episode];
      RETURN_IF_ERROR(Take(*turn.group, episode));
      if (episode.turns_left == 0) {
        --left;
        continue;
      }
      const std::vector<uint32_t> observation = randint_.Draw(workload_.observation_tokens);
      episode.token_ids.insert(episode.token_ids.end(), observation.begin(), observation.end());
      // All observations take equally long: the first turn that ended is the first one due.
      absl::SleepFor(turn.ended + absl::Milliseconds(workload_.environment_ms) - absl::Now());
      Send(episode, turn.episode);
    }
    played_.seconds = absl::ToDoubleSeconds(absl::Now() - start);
    return played_;
  }

 private:
  struct Turn {
    size_t episode = 0;
    absl::Time ended;
    absl::StatusOr<driver::Group> group;
  };
  // Callbacks may outlive a play that gives up.
  struct State {
    absl::Mutex mu;
    std::deque<Turn> turns ABSL_GUARDED_BY(mu);  // in the order in which they ended
  };

  absl::Status GiveUp(absl::Status status) {
    for (const auto& run : runs_) fleet_.Cancel(*run);
    return status;
  }

  void Send(Episode& episode, size_t index) {
    RolloutFleet::GenerateOptions options;
    options.return_text = false;
    options.replica = episode.replica;
    options.sampling.set_temperature(1);
    options.sampling.set_top_k(50);
    options.sampling.set_n(1);
    options.sampling.set_seed(1);
    options.sampling.set_ignore_eos(true);
    options.sampling.set_max_tokens(workload_.turn_tokens);
    driver::Prompt prompt;
    prompt.token_ids = episode.token_ids;
    runs_.push_back(fleet_.Start(prompt, static_cast<int64_t>(index), options,
                                 [state = state_, index](absl::StatusOr<driver::Group> group) {
                                   absl::MutexLock lock(&state->mu);
                                   state->turns.push_back({index, absl::Now(), std::move(group)});
                                 }));
  }

  absl::Status Take(const driver::Group& group, Episode& episode) {
    const driver::Completion& completion = group.completions.front();
    const auto found = static_cast<int64_t>(completion.token_ids.size());
    if (found != workload_.turn_tokens) {
      return absl::InternalError(
          absl::StrCat("expected ", workload_.turn_tokens, " tokens, found ", found));
    }
    if (std::exchange(episode.has_begun, true)) {
      played_.returning_tokens += completion.num_prompt_tokens;
      played_.cached_tokens += completion.num_cached_tokens;
    }
    episode.token_ids.insert(episode.token_ids.end(), completion.token_ids.begin(),
                             completion.token_ids.end());
    episode.replica = completion.replica;
    --episode.turns_left;
    return absl::OkStatus();
  }

  RolloutFleet& fleet_;
  TorchRandint& randint_;
  const EpisodeWorkload workload_;
  const std::shared_ptr<State> state_;
  std::vector<std::shared_ptr<RolloutFleet::Run>> runs_;
  Played played_;
};

}  // namespace

absl::StatusOr<nlohmann::json> RunEpisodeWorkload(RolloutFleet& fleet, TorchRandint& randint,
                                                  const EpisodeWorkload& workload, int repeats) {
  EpisodeWorkload single = workload;
  single.turns = 1;
  single.turn_tokens = workload.sampled_tokens();
  std::vector<double> seconds, single_seconds;
  int64_t returning = 0, cached = 0;
  for (int i = 0; i < repeats; ++i) {
    ASSIGN_OR_RETURN(const Played played, Player(fleet, randint, workload).Play());
    ASSIGN_OR_RETURN(const Played alone, Player(fleet, randint, single).Play());
    seconds.push_back(played.seconds);
    single_seconds.push_back(alone.seconds);
    returning += played.returning_tokens;
    cached += played.cached_tokens;
  }
  const auto sampled = static_cast<double>(workload.episodes * workload.sampled_tokens());
  nlohmann::json out = {{"episodes", workload.episodes},
                        {"turns", workload.turns},
                        {"prompt_tokens", workload.prompt_tokens},
                        {"turn_tokens", workload.turn_tokens},
                        {"observation_tokens", workload.observation_tokens},
                        {"environment_ms", workload.environment_ms},
                        {"seconds", Median(seconds)},
                        {"tokens_per_second", sampled / Median(seconds)},
                        {"single_turn_seconds", Median(single_seconds)},
                        {"single_turn_tokens_per_second", sampled / Median(single_seconds)},
                        {"ratio", Median(single_seconds) / Median(seconds)},
                        {"repeats", repeats}};
  if (returning > 0) {
    out["cached_prompt_ratio"] = static_cast<double>(cached) / static_cast<double>(returning);
  }
  return out;
}

}  // namespace tandem::bench
