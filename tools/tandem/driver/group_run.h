// GroupRun: plays the episodes of one group, turn by turn, until all have ended.
//
//   auto run = std::make_shared<GroupRun>(options);
//   run->Begin();
//   run->Cancel();   // at any time
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GROUP_RUN_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GROUP_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/task_pool.h"

namespace tandem::driver {

// Starts sampling completions of a turn; calls `done` once, from any thread, perhaps before it
// returns, with a group whose prompt is not set. Returns a function that cancels the
// request; `done` is then called soon. Requests have a deadline.
using Sampler = std::function<std::function<void()>(
    const Turn& turn, int64_t place, const RolloutFleet::GenerateOptions& options,
    std::function<void(absl::StatusOr<Group>)> done)>;

// Samples with `fleet`, which must outlive the sampler's requests.
Sampler FleetSampler(RolloutFleet& fleet);

// An episode that does not become a sample.
struct LostEpisode {
  int64_t num_tokens = 0;  // sampled
  bool is_played_again = false;
  std::string error;
};

// Times that an episode is played again before its group is dropped.
inline constexpr int kMaxEpisodeRetries = 2;

// Thread-safe. The first turn is one request for all samples of the group, so that the rollout
// computes the prompt once; later turns are a request of each episode. The episodes are asked for
// their later turns in `pool`, which has no thread waiting for an environment. An episode that the
// environment lost (environment::LossOf()) is played again from its first turn, or ends the run of
// the group with the error. Held by its requests, tasks and waiting episodes until they end.
class GroupRun : public std::enable_shared_from_this<GroupRun> {
 public:
  struct Options {
    Prompt prompt;
    int64_t place = 0;  // goes to the sampler, which mixes it into the seed
    RolloutFleet::GenerateOptions sampling;
    EpisodeFactory make_episode;
    const Sampler& sampler;  // used until the run ends
    std::shared_ptr<TaskPool> pool;
    // Called once, from any thread: with the group, perhaps aborted, from `pool`; or with the first
    // error, which cancels the group's other requests. Not called after Cancel().
    std::function<void(absl::StatusOr<Group>)> done;
    // Receives the number of sampled tokens of an episode that is played again, or that is lost with
    // its group. May be null.
    std::function<void(const LostEpisode&)> on_lost = nullptr;
  };

  explicit GroupRun(Options options);

  // Asks the episodes for their first turn and samples it, or lets them play themselves. Call once.
  void Begin();
  void Cancel() { End(absl::CancelledError("the group is no longer needed"), /*report=*/false); }

 private:
  // Samples the next turn of one episode, or, if `episode` is unset, the first turn of all.
  void Sample(const Turn& turn, std::optional<size_t> episode,
              const RolloutFleet::GenerateOptions& sampling);
  void OnSampled(std::optional<size_t> episode, Group sampled);
  // Lets an episode play itself.
  void Play(size_t episode);
  void OnPlayed(size_t episode);
  // Remembers a new request, and what cancels it; a request that is no longer wanted is cancelled.
  std::optional<int64_t> OpenRequest();
  void SetCancel(int64_t request, std::function<void()> cancel);
  void CloseRequest(int64_t request);
  // Hands an episode its completion.
  void Continue(size_t episode, Completion completion);
  // Asks the episode for its next turn, or ends it.
  void Proceed(size_t episode);
  void PlayAgain(size_t episode, const absl::Status& error);
  void Finish(size_t episode, Completion completion);
  // Cancels the open requests. Only the first call has an effect.
  void End(absl::Status error, bool report);
  // The turn with which all episodes begin.
  absl::StatusOr<Turn> FirstTurn();
  std::unique_ptr<Episode> MakeEpisode(size_t episode) const;
  RolloutFleet::GenerateOptions LaterSampling(size_t episode) const;
  bool has_baseline() const { return options_.sampling.baseline.has_value(); }

  Options options_;
  // One for each sample; the baseline's is the last.
  std::vector<std::unique_ptr<Episode>> episodes_;
  std::vector<int64_t> num_requests_;  // of each episode, sampled by now, over all its attempts
  std::vector<int> num_retries_;       // of each episode

  absl::Mutex mu_;
  std::vector<Completion> completions_ ABSL_GUARDED_BY(mu_);  // of the episodes that have ended
  size_t num_ended_ ABSL_GUARDED_BY(mu_) = 0;
  // Of each episode's present attempt: tokens sampled by now.
  std::vector<int64_t> num_tokens_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, std::function<void()>> open_ ABSL_GUARDED_BY(mu_);  // cancels a request
  int64_t next_request_ ABSL_GUARDED_BY(mu_) = 0;
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GROUP_RUN_H_
