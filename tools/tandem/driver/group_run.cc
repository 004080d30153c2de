#include "tools/tandem/driver/group_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

Sampler FleetSampler(RolloutFleet& fleet) {
  return [&fleet](const Turn& turn, int64_t place, const RolloutFleet::GenerateOptions& options,
                  std::function<void(absl::StatusOr<Group>)> done) -> std::function<void()> {
    Prompt prompt;
    prompt.token_ids = turn.token_ids;
    prompt.text = turn.text;
    std::shared_ptr<RolloutFleet::Run> run = fleet.Start(prompt, place, options, std::move(done));
    return [&fleet, run = std::move(run)] { fleet.Cancel(*run); };
  };
}

GroupRun::GroupRun(Options options)
    : options_(std::move(options)),
      episodes_(options_.sampling.sampling.n() + (has_baseline() ? 1 : 0)),
      num_turns_(episodes_.size(), 0),
      completions_(episodes_.size()) {}

void GroupRun::Begin() {
  const absl::StatusOr<Turn> first = FirstTurn();
  if (!first.ok()) {
    End(first.status(), /*report=*/true);
    return;
  }
  Sample(*first, std::nullopt, options_.sampling);
}

absl::StatusOr<Turn> GroupRun::FirstTurn() {
  std::optional<Turn> first;
  for (std::unique_ptr<Episode>& episode : episodes_) {
    episode = options_.make_episode(options_.prompt);
    ASSIGN_OR_RETURN(std::optional<Turn> turn, episode->NextTurn(std::nullopt));
    if (!turn.has_value() || (first.has_value() && *turn != *first)) {
      return absl::InternalError(absl::StrCat(
          "row ", options_.prompt.row + 1,
          " of the data set: expected episodes that begin with one ",
          "turn, the same for all, found ", turn.has_value() ? "different first turns" : "none"));
    }
    first = std::move(turn);
  }
  return *std::move(first);
}

void GroupRun::Sample(const Turn& turn, std::optional<size_t> episode,
                      const RolloutFleet::GenerateOptions& sampling) {
  int64_t request = 0;
  {
    absl::MutexLock lock(&mu_);
    if (has_ended_) return;
    request = next_request_++;
    open_[request] = nullptr;
  }
  std::function<void()> cancel = options_.sampler(
      turn, options_.place, sampling,
      [self = shared_from_this(), request, episode](absl::StatusOr<Group> sampled) {
        {
          absl::MutexLock lock(&self->mu_);
          self->open_.erase(request);
        }
        if (!sampled.ok()) {
          self->End(sampled.status(), /*report=*/true);
          return;
        }
        // Not on this thread, which is the sampler's: an episode may wait for its environment.
        self->options_.pool.Add([self, episode, group = *std::move(sampled)]() mutable {
          self->OnSampled(episode, std::move(group));
        });
      });
  {
    absl::MutexLock lock(&mu_);
    const auto open = open_.find(request);
    if (open == open_.end()) return;  // it is done
    open->second = cancel;
    if (!has_ended_) return;
  }
  cancel();  // the group ended while the request started
}

void GroupRun::OnSampled(std::optional<size_t> episode, Group sampled) {
  const size_t expected = episode.has_value() ? 1 : episodes_.size() - (has_baseline() ? 1 : 0);
  const bool wants_baseline = !episode.has_value() && has_baseline();
  if (sampled.completions.size() != expected || sampled.baseline.has_value() != wants_baseline) {
    End(absl::InternalError(absl::StrCat(
            "row ", options_.prompt.row + 1, " of the data set: expected ", expected,
            wants_baseline ? " completions and a baseline" : " completions", ", found ",
            sampled.completions.size(), sampled.baseline.has_value() ? " and a baseline" : "")),
        /*report=*/true);
    return;
  }
  for (size_t i = 0; i < sampled.completions.size(); ++i) {
    Continue(episode.value_or(i), std::move(sampled.completions[i]));
  }
  if (wants_baseline) Continue(episodes_.size() - 1, *std::move(sampled.baseline));
}

void GroupRun::Continue(size_t episode, Completion completion) {
  ++num_turns_[episode];
  // An episode cannot continue from part of a turn: the whole group counts as aborted.
  if (completion.finish_reason == common::v1::FINISH_REASON_ABORTED) {
    Finish(episode, std::move(completion));
    return;
  }
  const absl::StatusOr<std::optional<Turn>> turn =
      episodes_[episode]->NextTurn(std::move(completion));
  if (!turn.ok()) {
    End(StatusBuilder(turn.status()) << "row " << options_.prompt.row + 1 << " of the data set",
        /*report=*/true);
  } else if (turn->has_value()) {
    Sample(**turn, episode, LaterSampling(episode));
  } else {
    Finish(episode, episodes_[episode]->Take());
  }
}

void GroupRun::Finish(size_t episode, Completion completion) {
  Group group;
  {
    absl::MutexLock lock(&mu_);
    completions_[episode] = std::move(completion);
    if (++num_ended_ < episodes_.size() || has_ended_) return;
    has_ended_ = true;
    group.completions = std::move(completions_);
  }
  if (has_baseline()) {
    group.baseline = std::move(group.completions.back());
    group.completions.pop_back();
  }
  group.prompt = std::move(options_.prompt);
  options_.done(std::move(group));
}

void GroupRun::End(absl::Status error, bool report) {
  std::map<int64_t, std::function<void()>> open;
  {
    absl::MutexLock lock(&mu_);
    if (has_ended_) return;
    has_ended_ = true;
    open = open_;
  }
  for (const auto& [request, cancel] : open) {
    if (cancel != nullptr) cancel();
  }
  if (report) options_.done(std::move(error));
}

RolloutFleet::GenerateOptions GroupRun::LaterSampling(size_t episode) const {
  RolloutFleet::GenerateOptions out = options_.sampling;
  if (has_baseline() && episode + 1 == episodes_.size()) out.sampling = *out.baseline;
  out.baseline.reset();
  out.sampling.set_n(1);
  if (out.sampling.has_seed()) {
    // One seed per episode and turn; the sampler mixes in the prompt's place.
    out.sampling.set_seed(out.sampling.seed() +
                          static_cast<uint64_t>(episode + 1) * 0xA0761D6478BD642FULL +
                          static_cast<uint64_t>(num_turns_[episode]) * 0xE7037ED1A0B428DBULL);
  }
  return out;
}

}  // namespace tandem::driver
