#include "tools/tandem/driver/generation_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/config/summary.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/episode_metrics.h"
#include "tools/tandem/driver/evaluator.h"
#include "tools/tandem/driver/group_filter.h"
#include "tools/tandem/driver/overlong_penalty.h"
#include "tools/tandem/driver/part_scores.h"
#include "tools/tandem/driver/poll_interval.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/reward_source.h"
#include "tools/tandem/environment/environment.h"

namespace tandem::driver {
namespace {

// Threads that judge groups and advance episodes. They mostly wait for rewards, so up to this many
// slow groups delay nothing else. With more, calls to a RewardService that judges one completion
// at a time would spend their deadline in its queue.
constexpr int64_t kMaxJudgingThreads = 32;

// Beyond this something is wrong with the environment, not with an episode.
constexpr int64_t kMaxDroppedInARow = 64;

RolloutFleet::GenerateOptions GroupSampling(const config::v1::RunConfig& config,
                                            const GroupSeed& seed) {
  RolloutFleet::GenerateOptions out{.sampling = TrainSampling(config)};
  // One seed per step and batch. The fleet mixes in the place, the engine the sample.
  out.sampling.set_seed(config.seed() * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(seed.step) +
                        static_cast<uint64_t>(seed.batch) * 0xD1B54A32D192ED03ULL);
  if (config.algorithm().adv_estimator() == config::v1::ADV_ESTIMATOR_REMAX) {
    out.baseline = GreedySampling(config);
  }
  out.return_routed_experts = config.actor().router_replay() == config::v1::ROUTER_REPLAY_R3;
  return out;
}

int64_t VersionShift(const GenerationLoop::Options& options) {
  // A checkpoint of an older release states the version in mode async only.
  if (options.restored == nullptr || options.restored->policy_version() == 0) return 0;
  return options.policy_version - options.restored->policy_version();
}

// The group with its versions in the trainer's current numbers, in which Save() states its own.
v1::FinishedGroup Renumbered(v1::FinishedGroup group, int64_t version_shift) {
  for (v1::Completion& completion : *group.mutable_completions()) {
    for (common::v1::VersionSpan& span : *completion.mutable_version_spans()) {
      span.set_policy_version(span.policy_version() + version_shift);
    }
  }
  return group;
}

}  // namespace

struct GenerationLoop::Wave {
  telemetry::TraceContext step;  // invalid: the wave is not traced
  telemetry::TraceContext span;  // the wave's
  absl::Time start = absl::Now();
  int64_t num_groups = 0;
  int64_t num_playing = 0;  // guarded by the loop's lock
};

GenerationLoop::GenerationLoop(Options options)
    : options_(std::move(options)),
      sampler_([this](const Turn& turn, int64_t place,
                      const RolloutFleet::GenerateOptions& sampling,
                      std::function<void(absl::StatusOr<Group>)> done) {
        {
          absl::MutexLock lock(&mu_);
          ++num_requests_;
        }
        return options_.sampler(turn, place, sampling,
                                [this, done = std::move(done)](absl::StatusOr<Group> group) {
                                  done(std::move(group));
                                  absl::MutexLock lock(&mu_);
                                  --num_requests_;
                                });
      }),
      is_continuous_(options_.config.trainer().mode() == config::v1::TRAINING_MODE_ASYNC),
      first_place_(options_.prompts.position()),
      version_shift_(VersionShift(options_)),
      queue_(MakeGroupQueue(options_.config, options_.first_step, options_.num_batches)),
      next_place_(first_place_),
      trace_(options_.trace),
      pool_(std::make_shared<TaskPool>(kMaxJudgingThreads, [this](absl::Status error) {
        absl::MutexLock lock(&mu_);
        Fail(std::move(error));
      })) {
  if (options_.restored != nullptr) {
    {
      absl::MutexLock lock(&mu_);
      for (const v1::FinishedGroup& group : options_.restored->groups()) {
        restored_[first_place_ + group.place()] = &group;
        finished_[first_place_ + group.place()] = Renumbered(group, version_shift_);
      }
    }
    for (const int64_t place : options_.restored->done_places()) {
      restored_done_.insert(first_place_ + place);
    }
    BeginGroups();  // before Save(), so that the next checkpoint includes the restored groups
  }
  thread_ = std::thread([this] {
    absl::Status status = Catch([this] {
      Loop();
      return absl::OkStatus();
    });
    if (status.ok()) return;
    absl::MutexLock lock(&mu_);
    Fail(std::move(status));
  });
}

GenerationLoop::~GenerationLoop() {
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
  }
  thread_.join();
  std::map<int64_t, std::shared_ptr<GroupRun>> runs;
  {
    absl::MutexLock lock(&mu_);
    runs.swap(runs_);
  }
  for (const auto& [place, run] : runs) run->Cancel();
  pool_->Stop();
  // Every request is cancelled and has a deadline, so this wait ends.
  absl::MutexLock lock(&mu_);
  const auto all_ended = [this] {
    mu_.AssertHeld();
    return num_requests_ == 0;
  };
  mu_.Await(absl::Condition(&all_ended));
}

void GenerationLoop::Loop() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this] {
        mu_.AssertHeld();
        return is_ending_ || !error_.ok() || Room() > 0;
      };
      mu_.Await(absl::Condition(&has_work));
      if (is_ending_ || !error_.ok()) return;
    }
    BeginGroups();
  }
}

int64_t GenerationLoop::Room() const {
  const int64_t capacity = queue_->capacity();
  if (!is_continuous_ || options_.restored == nullptr) return capacity;
  // The checkpoint's prompts begin even without capacity.
  return std::max(capacity, first_place_ + options_.restored->num_prompts() - next_place_);
}

void GenerationLoop::BeginGroups() {
  const bool interrupted = options_.interrupted && options_.interrupted();
  auto wave = std::make_shared<Wave>();
  std::vector<std::shared_ptr<GroupRun>> runs;
  {
    absl::MutexLock lock(&mu_);
    if (interrupted) {
      Fail(absl::CancelledError("interrupted"));
      return;
    }
    wave->step = trace_;
    if (trace_.valid()) {
      wave->span = trace_;
      wave->span.span = telemetry::NewSpanId();
    }
    CountJudgingTime();
    for (Prompt& prompt : options_.prompts.Next(Room())) {
      const int64_t place = next_place_++;
      if (restored_done_.contains(place)) continue;
      const GroupSeed seed = queue_->Begin(place);
      if (const auto saved = restored_.find(place); saved != restored_.end()) {
        if (absl::Status status = Restore(place, std::move(prompt), *saved->second, trace_);
            !status.ok()) {
          Fail(std::move(status));
          return;
        }
        continue;
      }
      if (options_.restored != nullptr && place < first_place_ + options_.restored->num_prompts()) {
        ++num_regenerated_;
      }
      runs.push_back(runs_[place] = MakeRun(place, std::move(prompt), seed, wave));
    }
    wave->num_groups = wave->num_playing = static_cast<int64_t>(runs.size());
    num_playing_ += wave->num_groups;
  }
  const telemetry::ScopedTraceContext scope(wave->span);
  for (const auto& run : runs) run->Begin();
}

std::shared_ptr<GroupRun> GenerationLoop::MakeRun(int64_t place, Prompt prompt,
                                                  const GroupSeed& seed,
                                                  const std::shared_ptr<Wave>& wave) {
  RolloutFleet::GenerateOptions sampling = GroupSampling(options_.config, seed);
  sampling.on_tokens = options_.on_tokens;
  return std::make_shared<GroupRun>(GroupRun::Options{
      .prompt = std::move(prompt),
      .place = seed.place,
      .sampling = std::move(sampling),
      .make_episode = options_.make_episode,
      .sampler = sampler_,
      .pool = pool_,
      .done = [this, place,
               wave](absl::StatusOr<Group> group) { OnPlayed(place, *wave, std::move(group)); },
      .on_lost = [this](const LostEpisode& episode) { OnLost(episode); }});
}

absl::Status GenerationLoop::Restore(int64_t place, Prompt prompt, const v1::FinishedGroup& saved,
                                     const telemetry::TraceContext& trace) {
  if (saved.row() != prompt.row) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint has samples of row %d as prompt %d after its position in the data, but the "
        "data has row %d there; resume with the same files in the same order, seed and "
        "data.train_batch_size",
        saved.row(), saved.place(), prompt.row));
  }
  Group group = FromProto(saved);
  group.prompt = std::move(prompt);
  group.version_shift = version_shift_;
  ++num_judging_;
  pool_->Add([this, place, trace, group = std::move(group)]() mutable {
    Judge(place, std::move(group), trace);
  });
  return absl::OkStatus();
}

void GenerationLoop::OnPlayed(int64_t place, Wave& wave, absl::StatusOr<Group> group) {
  const bool is_complete = group.ok() && !group->aborted();
  // An interrupt aborts what is being sampled. Those groups stay open: the checkpoint keeps their
  // prompts, and no step trains on the rest of a batch.
  const bool stays_open =
      !is_complete && group.ok() && options_.interrupted && options_.interrupted();
  std::optional<v1::FinishedGroup> finished;
  if (is_complete) finished = ToProto(place, *group);
  {
    absl::MutexLock lock(&mu_);
    CountJudgingTime();
    --num_playing_;
    runs_.erase(place);
    if (--wave.num_playing == 0 && wave.step.valid()) {
      telemetry::RecordSpan("generate", wave.start, wave.span, wave.step.span,
                            {{"prompts", wave.num_groups}});
    }
    if (is_complete) {
      finished_[place] = *std::move(finished);
      ++num_judging_;
      num_dropped_in_a_row_ = 0;
    } else {
      if (environment::LossOf(group.status()) != environment::Loss::kNone) {
        DropGroup(place, group.status());
      } else if (!group.ok()) {
        Fail(group.status());
      } else if (!stays_open) {
        queue_->Abort(place);
      }
      ++num_changes_;
    }
  }
  // A complete group arrives on a thread of the pool.
  if (is_complete) Judge(place, *std::move(group), wave.step);
}

void GenerationLoop::OnLost(const LostEpisode& episode) {
  absl::MutexLock lock(&mu_);
  if (episode.is_played_again) ++num_retried_episodes_;
  num_discarded_tokens_ += episode.num_tokens;
}

void GenerationLoop::DropGroup(int64_t place, const absl::Status& error) {
  ++num_dropped_groups_;
  queue_->Drop(place);
  if (++num_dropped_in_a_row_ < kMaxDroppedInARow) return;
  Fail(absl::AbortedError(absl::StrFormat(
      "the environment lost %d groups one after another, the last one: %s; see its log",
      num_dropped_in_a_row_, error.message())));
}

void GenerationLoop::DropUnjudged(int64_t place, const Group& group) {
  num_failed_judgements_ += group.num_failed_judgements;
  ++num_unjudged_groups_;
  queue_->Drop(place);
  if (++num_unjudged_in_a_row_ < options_.config.data().train_batch_size()) return;
  Fail(StatusBuilder(group.judgement)
       << "no reward for any completion of " << num_unjudged_in_a_row_
       << " groups one after another, a whole step");
}

void GenerationLoop::AddLossMetrics(Metrics& metrics) {
  if (MayFail(options_.config.reward())) {
    metrics["reward/failed_judgements"] =
        static_cast<double>(std::exchange(num_failed_judgements_, 0));
    metrics["reward/dropped_groups"] = static_cast<double>(std::exchange(num_unjudged_groups_, 0));
  }
  if (!config::PlaysEpisodes(options_.config)) return;
  metrics["environment/retried_episodes"] =
      static_cast<double>(std::exchange(num_retried_episodes_, 0));
  metrics["environment/dropped_groups"] =
      static_cast<double>(std::exchange(num_dropped_groups_, 0));
  metrics["environment/discarded_tokens"] =
      static_cast<double>(std::exchange(num_discarded_tokens_, 0));
}

void GenerationLoop::Judge(int64_t place, Group group, const telemetry::TraceContext& trace) {
  const config::v1::AlgorithmConfig& algorithm = options_.config.algorithm();
  const config::v1::FilterGroupsConfig& filter = algorithm.filter_groups();
  std::vector<Group> groups;
  groups.push_back(std::move(group));
  absl::Status status;
  {
    const telemetry::ScopedTraceContext scope(trace);
    const telemetry::ScopedSpan span("reward", {{"groups", groups.size()}});
    bool has_returned = false;  // an error that it returns names the row
    status = Catch([&] {
      absl::Status judged = options_.rewarder.Judge(groups);
      has_returned = true;
      return judged;
    });
    if (!has_returned) status = StatusBuilder(status) << RowName(groups[0].prompt);
  }
  const bool is_judged = status.ok() && groups[0].judgement.ok();
  if (is_judged) AddOverlongPenalty(options_.config, groups);
  const bool differs = is_judged && (!filter.enable() || Differs(groups[0], filter.metric(),
                                                                 algorithm.adv_estimator()));
  if (differs && options_.teachers != nullptr) {
    const telemetry::ScopedTraceContext scope(trace);
    status = Catch([&] { return options_.teachers->Score(groups); });
  }
  absl::MutexLock lock(&mu_);
  CountJudgingTime();
  --num_judging_;
  ++num_changes_;
  if (!status.ok()) {
    Fail(std::move(status));
  } else if (!is_judged) {
    DropUnjudged(place, groups[0]);
  } else {
    num_unjudged_in_a_row_ = 0;
    queue_->Finish(place, std::move(groups[0]), differs);
  }
}

void GenerationLoop::Fail(absl::Status error) {
  if (error_.ok()) error_ = std::move(error);
  ++num_changes_;
}

void GenerationLoop::CountJudgingTime() {
  const absl::Time now = absl::Now();
  if (num_judging_ > 0 && num_playing_ == 0) {
    judging_seconds_ += absl::ToDoubleSeconds(now - counted_until_);
  }
  counted_until_ = now;
}

void GenerationLoop::AwaitChange() {
  const int64_t seen = num_changes_;
  const auto has_changed = [this, seen] {
    mu_.AssertHeld();
    return num_changes_ != seen;
  };
  mu_.AwaitWithTimeout(absl::Condition(&has_changed), kPollInterval);
}

absl::StatusOr<StepBatch> GenerationLoop::Take(int64_t step, int64_t version,
                                               const std::function<absl::Status()>& look) {
  // Requests and judgements have deadlines, so this loop ends.
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      RETURN_IF_ERROR(error_) << "step " << step;
      ASSIGN_OR_RETURN(std::optional<StepBatch> batch, queue_->Take(version));
      if (batch.has_value()) {
        restored_.clear();  // later steps have no groups of the checkpoint
        std::erase_if(finished_, [this](const auto& entry) {
          mu_.AssertHeld();
          return !queue_->IsOpen(entry.first);
        });
        CountJudgingTime();
        batch->metrics["timing_s/reward"] = std::exchange(judging_seconds_, 0);
        if (options_.config.reward().overlong_buffer().enable()) {
          AddOverlongMetrics(batch->groups, batch->metrics);
        }
        AddPartScoreMetrics(batch->groups, batch->metrics);
        AddEpisodeMetrics(batch->groups, batch->metrics);
        if (options_.teachers != nullptr) {
          batch->metrics["timing_s/teacher"] = options_.teachers->TakeSeconds();
        }
        AddLossMetrics(batch->metrics);
        return *std::move(batch);
      }
      AwaitChange();
    }
    RETURN_IF_ERROR(look());
  }
}

absl::Status GenerationLoop::WaitForBatch(const std::function<absl::Status()>& look) {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (!error_.ok() || queue_->HasBatch()) return absl::OkStatus();
      AwaitChange();
      if (!error_.ok() || queue_->HasBatch()) return absl::OkStatus();
    }
    RETURN_IF_ERROR(look());
  }
}

void GenerationLoop::OpenStep(const telemetry::TraceContext& trace) {
  absl::MutexLock lock(&mu_);
  trace_ = trace;
  queue_->OpenStep();
}

Ahead GenerationLoop::Save(int64_t next_step, int64_t version) const {
  Ahead out;
  v1::Generation& state = out.generation;
  state.set_step(next_step);
  absl::MutexLock lock(&mu_);
  out.prompt_position = queue_->FirstOpen(next_place_);
  state.set_num_prompts(next_place_ - out.prompt_position);
  state.set_policy_version(version);
  if (is_continuous_) {
    state.set_is_continuous(true);
    for (int64_t place = out.prompt_position; place < next_place_; ++place) {
      if (!queue_->IsOpen(place)) state.add_done_places(place - out.prompt_position);
    }
  }
  for (const auto& [place, group] : finished_) {
    if (place < next_place_ && !queue_->IsOpen(place)) continue;
    v1::FinishedGroup& added = *state.add_groups();
    added = group;
    added.set_place(place - out.prompt_position);
  }
  return out;
}

int64_t GenerationLoop::num_regenerated() const {
  absl::MutexLock lock(&mu_);
  return num_regenerated_;
}

}  // namespace tandem::driver
