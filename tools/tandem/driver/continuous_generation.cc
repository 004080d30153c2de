#include "tools/tandem/driver/continuous_generation.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/group_filter.h"
#include "tools/tandem/driver/look_interval.h"
#include "tools/tandem/driver/overlong_penalty.h"

namespace tandem::driver {
namespace {

GroupQueue::Options QueueOptions(const ContinuousGenerationOptions& options) {
  const config::v1::TrainerConfig& trainer = options.config.trainer();
  GroupQueue::Options out;
  out.batch_size = options.config.data().train_batch_size();
  out.max_staleness = trainer.max_staleness();
  out.max_running = options.config.rollout().max_concurrent_groups();
  out.num_batches = options.num_batches;
  out.drops_stale = trainer.stale_samples() != config::v1::STALE_SAMPLES_TRAIN;
  return out;
}

}  // namespace

ContinuousGeneration::ContinuousGeneration(const ContinuousGenerationOptions& options)
    : options_(options),
      first_place_(options.prompts.position()),
      version_shift_(options.restored != nullptr && options.restored->is_continuous()
                         ? options.policy_version - options.restored->policy_version()
                         : 0),
      queue_(QueueOptions(options)),
      next_place_(first_place_),
      policy_version_(options.policy_version) {
  if (options_.restored != nullptr) {
    for (const v1::FinishedGroup& group : options_.restored->groups()) {
      restored_[first_place_ + group.place()] = &group;
    }
    for (const int64_t place : options_.restored->done_places()) {
      restored_done_.insert(first_place_ + place);
    }
    // Keeps everything in the checkpoint, so that the next checkpoint has no less.
    for (int64_t i = 0; i < options_.restored->num_prompts() && error_.ok(); ++i) {
      absl::Status status = BeginOne();
      absl::MutexLock lock(&mu_);
      error_ = std::move(status);
    }
  }
  thread_ = std::thread([this] { Loop(); });
}

ContinuousGeneration::~ContinuousGeneration() {
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
  }
  thread_.join();
  std::map<int64_t, std::shared_ptr<RolloutFleet::Run>> runs;
  {
    absl::MutexLock lock(&mu_);
    runs.swap(runs_);
  }
  for (const auto& [place, run] : runs) options_.fleet.Cancel(*run);
  // Each is cancelled, and has a deadline.
  absl::MutexLock lock(&mu_);
  const auto all_ended = [this] {
    mu_.AssertHeld();
    return num_sampling_ == 0;
  };
  mu_.Await(absl::Condition(&all_ended));
}

void ContinuousGeneration::Loop() {
  while (true) {
    std::deque<Sampled> sampled;
    bool may_begin = false;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this] {
        mu_.AssertHeld();
        return is_ending_ || !error_.ok() || !sampled_.empty() || queue_.capacity() > 0;
      };
      mu_.Await(absl::Condition(&has_work));
      if (is_ending_ || !error_.ok()) return;
      may_begin = queue_.capacity() > 0;
      sampled.swap(sampled_);
    }
    absl::Status status = may_begin ? BeginOne() : absl::OkStatus();
    if (status.ok()) status = Judge(std::move(sampled));
    if (!status.ok()) {
      absl::MutexLock lock(&mu_);
      error_ = std::move(status);
      ++num_changes_;
      return;
    }
  }
}

absl::Status ContinuousGeneration::BeginOne() {
  Prompt prompt = std::move(options_.prompts.Next(1)[0]);
  const int64_t batch_size = options_.config.data().train_batch_size();
  const int64_t known = options_.restored == nullptr ? 0 : options_.restored->num_prompts();
  int64_t place = 0;
  {
    absl::MutexLock lock(&mu_);
    place = next_place_++;
    if (restored_done_.contains(place)) return absl::OkStatus();
    queue_.Begin(place);
    prompts_[place] = prompt;
    const auto saved = restored_.find(place);
    if (saved != restored_.end()) {
      if (saved->second->row() != prompt.row) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "the checkpoint has samples of row %d as prompt %d, and the data has row %d there; the "
            "files, their order and the seed must be the same",
            saved->second->row(), place, prompt.row));
      }
      Group group = FromProto(*saved->second);
      group.version_shift = version_shift_;
      sampled_.push_back({place, std::move(group)});
      return absl::OkStatus();
    }
    num_regenerated_ += place < first_place_ + known ? 1 : 0;
    ++num_sampling_;
  }
  // As in mode sync: the seed follows from the step that would train on it and the place in its
  // batch.
  RolloutFleet::GenerateOptions sampling =
      TrainGenerateOptions(options_.config, 1 + place / batch_size, /*batch=*/0);
  sampling.on_tokens = options_.on_tokens;
  auto run = options_.fleet.Start(prompt, place % batch_size, sampling,
                                  [this, place](absl::StatusOr<Group> group) {
                                    absl::MutexLock lock(&mu_);
                                    --num_sampling_;
                                    sampled_.push_back({place, std::move(group)});
                                  });
  absl::MutexLock lock(&mu_);
  if (prompts_.contains(place)) runs_[place] = std::move(run);
  return absl::OkStatus();
}

absl::Status ContinuousGeneration::Judge(std::deque<Sampled> sampled) {
  if (sampled.empty()) return absl::OkStatus();
  const config::v1::FilterGroupsConfig& filter = options_.config.algorithm().filter_groups();
  const absl::Time start = absl::Now();
  std::vector<Group> groups;
  std::vector<int64_t> places;
  absl::Status error;
  {
    absl::MutexLock lock(&mu_);
    for (Sampled& one : sampled) {
      runs_.erase(one.place);
      if (!one.group.ok() || one.group->aborted()) {
        prompts_.erase(one.place);
        queue_.Drop(one.place);
        if (error.ok()) {
          error = one.group.ok() ? absl::CancelledError("the rollouts' requests were aborted")
                                 : one.group.status();
        }
        continue;
      }
      one.group->prompt = std::move(prompts_[one.place]);
      prompts_.erase(one.place);
      groups.push_back(*std::move(one.group));
      places.push_back(one.place);
    }
  }
  RETURN_IF_ERROR(error);
  RETURN_IF_ERROR(options_.rewarder.Judge(groups));
  PunishOverlong(options_.config, groups);
  absl::MutexLock lock(&mu_);
  ++num_changes_;
  reward_seconds_ += absl::ToDoubleSeconds(absl::Now() - start);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (filter.enable() && !Differs(groups[i], filter.metric())) {
      ++num_filtered_;
      filtered_reward_ += groups[i].mean_reward();
      queue_.Drop(places[i]);
    } else {
      queue_.Finish(places[i], std::move(groups[i]));
    }
  }
  const int64_t batch_size = options_.config.data().train_batch_size();
  if (filter.enable() && filter.max_num_gen_batches() > 0 &&
      num_filtered_ > filter.max_num_gen_batches() * batch_size) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "expected %d groups whose rewards differ (data.train_batch_size); found %d, and %d whose "
        "rewards are all equal, more than algorithm.filter_groups.max_num_gen_batches allows. The "
        "prompts are too easy or too hard for the policy: give other data, a larger rollout.n or "
        "rollout.temperature, or more batches (0 generates without end)",
        batch_size, queue_.num_ready(), num_filtered_));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepBatch> ContinuousGeneration::Take(int64_t step, int64_t version,
                                                     const std::function<absl::Status()>& look) {
  // Every group has a deadline, so this loop ends.
  while (true) {
    RETURN_IF_ERROR(look());
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(error_) << "step " << step;
    std::optional<std::vector<Group>> groups = queue_.Take(version);
    if (!groups.has_value()) {
      const int64_t seen = num_changes_;
      const auto has_changed = [&] {
        mu_.AssertHeld();
        return num_changes_ != seen;
      };
      mu_.AwaitWithTimeout(absl::Condition(&has_changed), kLook);
      continue;
    }
    StepBatch out;
    out.groups = *std::move(groups);
    double reward = filtered_reward_;
    for (const Group& group : out.groups) reward += group.mean_reward();
    Metrics& metrics = out.metrics;
    metrics["rollout/judged_reward/mean"] =
        reward / static_cast<double>(out.groups.size() + num_filtered_);
    if (options_.config.algorithm().filter_groups().enable()) {
      metrics["rollout/filtered_groups"] = static_cast<double>(num_filtered_);
    }
    metrics["timing_s/reward"] = reward_seconds_;
    metrics["async/running_groups"] = static_cast<double>(queue_.num_running());
    metrics["async/ready_groups"] = static_cast<double>(queue_.num_ready());
    const bool drops = options_.config.trainer().stale_samples() != config::v1::STALE_SAMPLES_TRAIN;
    metrics[drops ? "async/dropped_groups" : "async/stale_groups"] =
        static_cast<double>(queue_.TakeNumStale());
    num_filtered_ = 0;
    filtered_reward_ = reward_seconds_ = 0;
    if (options_.config.reward().overlong_buffer().enable()) {
      AddOverlongMetrics(out.groups, metrics);
    }
    return out;
  }
}

void ContinuousGeneration::StepDone(int64_t version) {
  absl::MutexLock lock(&mu_);
  policy_version_ = version;
  queue_.StepDone();
}

int64_t ContinuousGeneration::num_regenerated() const {
  absl::MutexLock lock(&mu_);
  return num_regenerated_;
}

v1::Generation ContinuousGeneration::Finished(int64_t next_step, int64_t& prompt_position) const {
  v1::Generation out;
  out.set_step(next_step);
  out.set_is_continuous(true);
  absl::MutexLock lock(&mu_);
  prompt_position = queue_.FirstOpen(next_place_);
  out.set_policy_version(policy_version_);
  out.set_num_prompts(next_place_ - prompt_position);
  for (const int64_t place : queue_.DonePlaces(next_place_)) {
    out.add_done_places(place - prompt_position);
  }
  for (const auto& [place, group] : queue_.ready()) {
    Prompt prompt = group.prompt;
    prompt.place = place - prompt_position;
    *out.add_groups() = ToProto(prompt, group);
  }
  return out;
}

}  // namespace tandem::driver
