#include "tools/tandem/bench/group_workload.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace tandem::bench {
namespace {

// Longer than any run; a group that hangs fails sooner, by the fleet's own deadline.
constexpr absl::Duration kPatience = absl::Minutes(30);

struct Request {
  std::vector<uint32_t> token_ids;
  int32_t samples;
  int64_t new_tokens;
};

struct Timing {
  double seconds;
  int64_t prefilled_tokens;
};

absl::StatusOr<int64_t> PrefilledTokens(const driver::RolloutFleet& fleet) {
  int64_t tokens = 0;
  for (const driver::RolloutFleet::Replica& replica : fleet.replicas()) {
    ASSIGN_OR_RETURN(const rollout::v1::GetServerInfoResponse info,
                     driver::RolloutFleet::GetServerInfo(replica));
    tokens += info.num_prefilled_tokens();
  }
  return tokens;
}

// What the requests' callbacks tell.
struct Progress {
  absl::Mutex mu;
  size_t left ABSL_GUARDED_BY(mu) = 0;
  absl::Status status ABSL_GUARDED_BY(mu);
};

absl::StatusOr<Timing> TimeRequests(driver::RolloutFleet& fleet,
                                    const std::vector<Request>& requests) {
  ASSIGN_OR_RETURN(const int64_t before, PrefilledTokens(fleet));
  // The callbacks may outlive this call if it times out.
  const auto progress = std::make_shared<Progress>();
  {
    absl::MutexLock lock(&progress->mu);
    progress->left = requests.size();
  }
  std::vector<std::shared_ptr<driver::RolloutFleet::Run>> runs;
  const absl::Time start = absl::Now();
  for (size_t i = 0; i < requests.size(); ++i) {
    driver::RolloutFleet::GenerateOptions options;
    options.return_text = false;
    options.sampling.set_temperature(1);
    options.sampling.set_top_k(50);
    options.sampling.set_n(requests[i].samples);
    options.sampling.set_seed(1);
    options.sampling.set_ignore_eos(true);
    options.sampling.set_max_tokens(requests[i].new_tokens);
    driver::Prompt prompt;
    prompt.token_ids = requests[i].token_ids;
    const int64_t expected = requests[i].new_tokens;
    runs.push_back(fleet.Start(
        prompt, static_cast<int64_t>(i), options,
        [progress, expected](const absl::StatusOr<driver::Group>& group) {
          absl::Status status = group.status();
          for (size_t c = 0; status.ok() && c < group->completions.size(); ++c) {
            const auto found = static_cast<int64_t>(group->completions[c].token_ids.size());
            if (found == expected) continue;
            status =
                absl::InternalError(absl::StrCat("expected ", expected, " tokens, found ", found));
          }
          absl::MutexLock lock(&progress->mu);
          --progress->left;
          progress->status.Update(status);
        }));
  }
  const auto is_done = [](Progress* state) {
    state->mu.AssertHeld();
    return state->left == 0 || !state->status.ok();
  };
  absl::Status status;
  {
    absl::MutexLock lock(&progress->mu);
    const bool done =
        progress->mu.AwaitWithTimeout(absl::Condition(+is_done, progress.get()), kPatience);
    status = progress->status;
    if (!done) {
      status = absl::DeadlineExceededError(absl::StrCat(progress->left, " of ", requests.size(),
                                                        " requests did not finish within ",
                                                        absl::FormatDuration(kPatience)));
    }
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (!status.ok()) {
    for (const auto& run : runs) fleet.Cancel(*run);
    return status;
  }
  ASSIGN_OR_RETURN(const int64_t after, PrefilledTokens(fleet));
  return Timing{seconds, after - before};
}

// New ids each time, so that nothing is found in the prefix cache; the same lengths each time.
std::vector<Request> MakeRequests(const GroupWorkload& workload, TorchRandint& randint, bool shared,
                                  bool prefill_only) {
  std::mt19937 lengths(1);
  std::vector<Request> requests;
  for (int64_t i = 0; i < workload.prompts; ++i) {
    const int64_t range = workload.most_new_tokens - workload.least_new_tokens + 1;
    const int64_t length = workload.least_new_tokens + static_cast<int64_t>(lengths()) % range;
    const int64_t new_tokens = prefill_only ? 1 : length;
    if (shared) {
      requests.push_back({randint.Draw(workload.prompt_tokens),
                          static_cast<int32_t>(workload.samples), new_tokens});
      continue;
    }
    for (int64_t s = 0; s < workload.samples; ++s) {
      requests.push_back({randint.Draw(workload.prompt_tokens), 1, new_tokens});
    }
  }
  return requests;
}

// Medians of one way of doing it.
struct Side {
  std::vector<double> seconds, prefill_seconds;
  int64_t prefilled_tokens = 0;
};

}  // namespace

absl::StatusOr<nlohmann::json> RunGroupWorkload(driver::RolloutFleet& fleet, TorchRandint& randint,
                                                const GroupWorkload& workload, int repeats) {
  int64_t new_tokens = 0;
  for (const Request& request : MakeRequests(workload, randint, true, false)) {
    new_tokens += request.samples * request.new_tokens;
  }
  Side sides[2];  // shared, and not
  for (int i = 0; i < repeats; ++i) {
    for (const bool shared : {true, false}) {
      Side& side = sides[shared ? 0 : 1];
      ASSIGN_OR_RETURN(const Timing prefill,
                       TimeRequests(fleet, MakeRequests(workload, randint, shared, true)));
      ASSIGN_OR_RETURN(const Timing whole,
                       TimeRequests(fleet, MakeRequests(workload, randint, shared, false)));
      side.prefill_seconds.push_back(prefill.seconds);
      side.seconds.push_back(whole.seconds);
      side.prefilled_tokens = whole.prefilled_tokens;
    }
  }
  const double seconds = Median(sides[0].seconds);
  const double seconds_without = Median(sides[1].seconds);
  const double prefill = Median(sides[0].prefill_seconds);
  const double prefill_without = Median(sides[1].prefill_seconds);
  const auto sampled = static_cast<double>(new_tokens);
  return nlohmann::json{
      {"prompts", workload.prompts},
      {"samples", workload.samples},
      {"prompt_tokens", workload.prompt_tokens},
      {"new_tokens", new_tokens},
      {"seconds", seconds},
      {"tokens_per_second", sampled / seconds},
      {"prefill_seconds", prefill},
      {"prefilled_tokens", sides[0].prefilled_tokens},
      {"without_sharing",
       {{"seconds", seconds_without},
        {"tokens_per_second", sampled / seconds_without},
        {"prefill_seconds", prefill_without},
        {"prefilled_tokens", sides[1].prefilled_tokens}}},
      {"saved_prefill_tokens", sides[1].prefilled_tokens - sides[0].prefilled_tokens},
      {"saved_prefill_seconds", prefill_without - prefill},
      {"speedup", seconds_without / seconds},
      {"repeats", repeats}};
}

}  // namespace tandem::bench
