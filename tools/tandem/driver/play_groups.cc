#include "tools/tandem/driver/play_groups.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/group_run.h"
#include "tools/tandem/driver/poll_interval.h"
#include "tools/tandem/driver/task_pool.h"

namespace tandem::driver {
namespace {

// Threads that advance episodes; none waits for an environment.
constexpr int64_t kMaxThreads = 8;
// From the cancellation of a request to its end.
constexpr absl::Duration kCancelTimeout = absl::Minutes(1);

// The groups hold it too, for their last callback may outlast the wait.
struct Inbox {
  absl::Mutex mu;
  std::vector<Group> groups ABSL_GUARDED_BY(mu);
  size_t num_done ABSL_GUARDED_BY(mu) = 0;
  int64_t num_requests ABSL_GUARDED_BY(mu) = 0;  // of the sampler, unfinished
  absl::Status error ABSL_GUARDED_BY(mu);

  void Fail(absl::Status status) {
    absl::MutexLock lock(&mu);
    if (error.ok()) error = std::move(status);
  }
};

// A sampler that counts its requests.
Sampler Counted(Sampler sampler, const std::shared_ptr<Inbox>& inbox) {
  return [sampler = std::move(sampler), inbox](const Turn& turn, int64_t place,
                                               const RolloutFleet::GenerateOptions& options,
                                               std::function<void(absl::StatusOr<Group>)> done) {
    {
      absl::MutexLock lock(&inbox->mu);
      ++inbox->num_requests;
    }
    return sampler(turn, place, options,
                   [inbox, done = std::move(done)](absl::StatusOr<Group> group) {
                     done(std::move(group));
                     absl::MutexLock lock(&inbox->mu);
                     --inbox->num_requests;
                   });
  };
}

}  // namespace

absl::StatusOr<std::vector<Group>> PlayGroups(std::vector<Prompt> prompts, RolloutFleet& fleet,
                                              const RolloutFleet::GenerateOptions& options,
                                              const EpisodeFactory& make_episode) {
  auto inbox = std::make_shared<Inbox>();
  const size_t num_groups = prompts.size();
  {
    absl::MutexLock lock(&inbox->mu);
    inbox->groups.resize(num_groups);
  }
  const Sampler sampler = Counted(FleetSampler(fleet), inbox);
  const auto pool = std::make_shared<TaskPool>(
      kMaxThreads, [inbox](absl::Status error) { inbox->Fail(std::move(error)); });
  RolloutFleet::GenerateOptions sampling = options;
  sampling.while_waiting = nullptr;
  std::vector<std::shared_ptr<GroupRun>> runs;
  for (size_t i = 0; i < num_groups; ++i) {
    runs.push_back(std::make_shared<GroupRun>(
        GroupRun::Options{.prompt = std::move(prompts[i]),
                          .place = static_cast<int64_t>(i),
                          .sampling = sampling,
                          .make_episode = make_episode,
                          .sampler = sampler,
                          .pool = pool,
                          .done = [inbox, i](absl::StatusOr<Group> group) {
                            if (!group.ok()) {
                              inbox->Fail(group.status());
                              return;
                            }
                            absl::MutexLock lock(&inbox->mu);
                            inbox->groups[i] = *std::move(group);
                            ++inbox->num_done;
                          }}));
  }
  for (const auto& run : runs) run->Begin();
  while (true) {
    {
      absl::MutexLock lock(&inbox->mu);
      const auto has_ended = [&inbox, num_groups] {
        inbox->mu.AssertHeld();
        return !inbox->error.ok() || inbox->num_done == num_groups;
      };
      // Requests and environments have deadlines, so this loop ends.
      if (inbox->mu.AwaitWithTimeout(absl::Condition(&has_ended), kPollInterval)) break;
    }
    if (!options.while_waiting) continue;
    if (absl::Status status = options.while_waiting(); !status.ok()) inbox->Fail(std::move(status));
  }
  for (const auto& run : runs) run->Cancel();
  pool->Stop();
  absl::MutexLock lock(&inbox->mu);
  // They are cancelled, or done.
  const auto all_returned = [&inbox] {
    inbox->mu.AssertHeld();
    return inbox->num_requests == 0;
  };
  const bool have_returned =
      inbox->mu.AwaitWithTimeout(absl::Condition(&all_returned), kCancelTimeout);
  RETURN_IF_ERROR(inbox->error);
  if (!have_returned) {
    return absl::DeadlineExceededError(absl::StrCat(
        "expected the requests of episodes to end with them; ", inbox->num_requests, " still run ",
        absl::FormatDuration(kCancelTimeout), " after they were cancelled"));
  }
  return std::move(inbox->groups);
}

}  // namespace tandem::driver
