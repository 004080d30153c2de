#include "tools/tandem/driver/group_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/environment/environment.h"

namespace tandem::driver {

Sampler FleetSampler(RolloutFleet& fleet) {
  return [&fleet](const Turn& turn, int64_t place, const RolloutFleet::GenerateOptions& options,
                  std::function<void(absl::StatusOr<Group>)> done) -> std::function<void()> {
    Prompt prompt;
    prompt.token_ids = turn.token_ids;
    prompt.text = turn.text;
    prompt.images = turn.images;
    std::shared_ptr<RolloutFleet::Run> run = fleet.Start(prompt, place, options, std::move(done));
    return [&fleet, run = std::move(run)] { fleet.Cancel(*run); };
  };
}

GroupRun::GroupRun(Options options)
    : options_(std::move(options)),
      episodes_(options_.sampling.sampling.n() + (has_baseline() ? 1 : 0)),
      num_requests_(episodes_.size(), 0),
      num_retries_(episodes_.size(), 0),
      completions_(episodes_.size()),
      num_tokens_(episodes_.size(), 0) {}

void GroupRun::Begin() {
  for (size_t i = 0; i < episodes_.size(); ++i) episodes_[i] = MakeEpisode(i);
  if (episodes_[0]->plays_itself()) {
    for (size_t i = 0; i < episodes_.size(); ++i) Play(i);
    return;
  }
  const absl::StatusOr<Turn> first = FirstTurn();
  if (!first.ok()) {
    End(first.status(), /*report=*/true);
    return;
  }
  Sample(*first, std::nullopt, options_.sampling);
}

absl::StatusOr<Turn> GroupRun::FirstTurn() {
  std::optional<Turn> first;
  for (const std::unique_ptr<Episode>& episode : episodes_) {
    ASSIGN_OR_RETURN(Turn turn, episode->FirstTurn());
    if (first.has_value() && turn != *first) {
      return absl::InternalError(absl::StrCat("row ", options_.prompt.row + 1,
                                              " of the data set: expected episodes with the same ",
                                              "first turn, found different ones"));
    }
    first = std::move(turn);
  }
  return *std::move(first);
}

std::unique_ptr<Episode> GroupRun::MakeEpisode(size_t episode) const {
  // One seed for the group: its samples play the same game.
  const uint64_t seed = options_.sampling.sampling.seed() +
                        static_cast<uint64_t>(options_.place + 1) * 0x9E3779B97F4A7C15ULL;
  return options_.make_episode(
      options_.prompt,
      {.seed = seed, .sample = static_cast<int64_t>(episode), .attempt = num_retries_[episode]});
}

std::optional<int64_t> GroupRun::OpenRequest() {
  absl::MutexLock lock(&mu_);
  if (has_ended_) return std::nullopt;
  const int64_t request = next_request_++;
  open_[request] = nullptr;
  return request;
}

void GroupRun::SetCancel(int64_t request, std::function<void()> cancel) {
  {
    absl::MutexLock lock(&mu_);
    const auto open = open_.find(request);
    if (open == open_.end()) return;  // it is done
    open->second = cancel;
    if (!has_ended_) return;
  }
  cancel();  // the group ended while the request started
}

void GroupRun::CloseRequest(int64_t request) {
  absl::MutexLock lock(&mu_);
  open_.erase(request);
}

void GroupRun::Sample(const Turn& turn, std::optional<size_t> episode,
                      const RolloutFleet::GenerateOptions& sampling) {
  const std::optional<int64_t> request = OpenRequest();
  if (!request.has_value()) return;
  RolloutFleet::GenerateOptions options = sampling;
  options.replica = turn.replica;
  for (rollout::v1::SamplingParams* params :
       {&options.sampling, options.baseline.has_value() ? &*options.baseline : nullptr}) {
    if (params == nullptr) continue;
    if (turn.max_tokens > 0) params->set_max_tokens(turn.max_tokens);
    for (const std::string& stop : turn.stop) params->add_stop(stop);
  }
  SetCancel(*request,
            options_.sampler(
                turn, options_.place, options,
                [self = shared_from_this(), request, episode](absl::StatusOr<Group> sampled) {
                  self->CloseRequest(*request);
                  if (!sampled.ok()) {
                    self->End(sampled.status(), /*report=*/true);
                    return;
                  }
                  // Not on this thread, which is the sampler's: an episode may wait for its
                  // environment.
                  self->options_.pool->Add([self, episode, group = *std::move(sampled)]() mutable {
                    self->OnSampled(episode, std::move(group));
                  });
                }));
}

void GroupRun::Play(size_t episode) {
  const std::optional<int64_t> request = OpenRequest();
  if (!request.has_value()) return;
  rollout::v1::SamplingParams sampling = LaterSampling(episode).sampling;
  if (sampling.has_seed()) {
    sampling.set_seed(sampling.seed() * 0x9E3779B97F4A7C15ULL +
                      static_cast<uint64_t>(options_.place) + 1);
  }
  SetCancel(*request,
            episodes_[episode]->Play(sampling, [self = shared_from_this(), request, episode] {
              self->CloseRequest(*request);
              self->options_.pool->Add([self, episode] { self->OnPlayed(episode); });
            }));
}

void GroupRun::OnPlayed(size_t episode) {
  const int64_t num_tokens = episodes_[episode]->num_played_tokens();
  if (options_.sampling.on_tokens) options_.sampling.on_tokens(num_tokens);
  bool is_too_late = false;
  {
    absl::MutexLock lock(&mu_);
    is_too_late = has_ended_;
    num_tokens_[episode] += num_tokens;
  }
  if (is_too_late) {
    if (options_.on_lost) options_.on_lost({num_tokens, /*is_played_again=*/false, ""});
    return;
  }
  ++num_requests_[episode];
  Proceed(episode);
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
  const auto num_tokens = static_cast<int64_t>(completion.token_ids.size());
  bool is_too_late = false;
  {
    absl::MutexLock lock(&mu_);
    is_too_late = has_ended_;
    num_tokens_[episode] += num_tokens;
  }
  if (is_too_late) {
    if (options_.on_lost) options_.on_lost({num_tokens, /*is_played_again=*/false, ""});
    return;
  }
  ++num_requests_[episode];
  // An episode cannot continue from part of a turn: the whole group counts as aborted.
  if (completion.finish_reason == common::v1::FINISH_REASON_ABORTED) {
    Finish(episode, std::move(completion));
    return;
  }
  const bool is_ready =
      episodes_[episode]->Continue(std::move(completion), [self = shared_from_this(), episode] {
        self->options_.pool->Add([self, episode] { self->Proceed(episode); });
      });
  if (is_ready) Proceed(episode);
}

void GroupRun::Proceed(size_t episode) {
  {
    absl::MutexLock lock(&mu_);
    if (has_ended_) return;
  }
  const absl::StatusOr<std::optional<Turn>> turn = episodes_[episode]->NextTurn();
  if (turn.ok() && turn->has_value()) {
    Sample(**turn, episode, LaterSampling(episode));
  } else if (turn.ok()) {
    Finish(episode, episodes_[episode]->Take());
  } else if (environment::LossOf(turn.status()) == environment::Loss::kPlayAgain &&
             num_retries_[episode] < kMaxEpisodeRetries) {
    PlayAgain(episode, turn.status());
  } else {
    End(StatusBuilder(turn.status()) << "row " << options_.prompt.row + 1 << " of the data set",
        /*report=*/true);
  }
}

void GroupRun::PlayAgain(size_t episode, const absl::Status& error) {
  int64_t num_tokens = 0;
  {
    absl::MutexLock lock(&mu_);
    if (has_ended_) return;
    num_tokens = std::exchange(num_tokens_[episode], 0);
  }
  if (options_.on_lost) {
    options_.on_lost({num_tokens, /*is_played_again=*/true, std::string(error.message())});
  }
  ++num_retries_[episode];
  episodes_[episode] = MakeEpisode(episode);
  if (episodes_[episode]->plays_itself()) {
    Play(episode);
    return;
  }
  const absl::StatusOr<Turn> first = episodes_[episode]->FirstTurn();
  if (!first.ok()) {
    End(first.status(), /*report=*/true);
  } else {
    Sample(*first, episode, LaterSampling(episode));
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
  std::vector<int64_t> num_tokens;
  {
    absl::MutexLock lock(&mu_);
    if (has_ended_) return;
    has_ended_ = true;
    open = open_;
    num_tokens = num_tokens_;
  }
  for (const auto& [request, cancel] : open) {
    if (cancel != nullptr) cancel();
  }
  if (!report) return;
  if (options_.on_lost && environment::LossOf(error) != environment::Loss::kNone) {
    for (const int64_t count : num_tokens) {
      options_.on_lost({count, /*is_played_again=*/false, std::string(error.message())});
    }
  }
  options_.done(std::move(error));
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
                          static_cast<uint64_t>(num_requests_[episode]) * 0xE7037ED1A0B428DBULL);
  }
  return out;
}

}  // namespace tandem::driver
