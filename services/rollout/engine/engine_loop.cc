// The engine thread: schedule, run, sample, collect; commands from other threads between two steps.
// Commits of weights are in engine_commit.cc.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/worker_pool.h"
#include "common/status/exceptions.h"
#include "common/telemetry/log.h"
#include "common/telemetry/trace.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/sampler/uniform.h"

namespace tandem::rollout {

void Engine::Loop() {
  telemetry::NameTraceThread("engine");
  std::optional<model::WorkerPool> pool;
  if (options_.device.is_cpu()) pool.emplace(at::get_num_threads(), options_.cpus);
  const model::UseWorkerPool use(pool.has_value() ? &*pool : nullptr);
  while (RunCommands()) {
    RunPeriodicTasks();
    if (!CanStep()) continue;
    Step();
    finished_.clear();
    RunWhenIdle();
    UpdateInfo();
  }
  // Nobody is left waiting for an answer.
  for (auto& held : std::exchange(held_, {})) Enqueue(std::move(held), /*hold=*/false);
  while (!requests_.empty()) {
    FinishRequest(*requests_.begin()->second, absl::CancelledError("the rollout has stopped"));
  }
  RunWhenIdle();
  if (options_.ranks != nullptr) options_.ranks->Stop();
}

bool Engine::CanStep() const { return !paused_ && live_ != nullptr && !requests_.empty(); }

bool Engine::RunCommands() {
  std::vector<Command> commands;
  bool stopping;
  {
    const bool can_step = CanStep();
    absl::MutexLock lock(&mu_);
    const auto has_news = [this] {
      mu_.AssertHeld();
      return stopping_ || !inbox_.empty();
    };
    if (!can_step) {
      // An idle engine has nothing to drain, so it waits for news alone.
      const absl::Time until = requests_.empty() ? absl::InfiniteFuture() : drain_deadline_;
      mu_.AwaitWithDeadline(absl::Condition(&has_news), std::min(until, NextPeriodicTask()));
    }
    commands.swap(inbox_);
    stopping = stopping_;
  }
  for (const Command& command : commands) command();
  if (drain_deadline_ != absl::InfiniteFuture() && !requests_.empty() &&
      (paused_ || absl::Now() >= drain_deadline_)) {
    AbortAll();
  }
  if (!commands.empty()) {
    finished_.clear();
    RunWhenIdle();
    UpdateInfo();
  }
  return !stopping;
}

void Engine::RunWhenIdle() {
  if (!requests_.empty()) return;
  for (const Command& command : std::exchange(when_idle_, {})) command();
  for (auto& request : std::exchange(held_, {})) Enqueue(std::move(request));
}

void Engine::Enqueue(std::unique_ptr<ActiveRequest> request, bool hold) {
  const bool waits_for_swap = swap_ != nullptr && options_.in_flight == InFlightPolicy::kWait;
  if (hold && (!when_idle_.empty() || waits_for_swap)) {
    held_.push_back(std::move(request));
    return;
  }
  ActiveRequest& active = *request;
  requests_.emplace(active.arrival, std::move(request));
  num_queued_tokens_ += active.num_queued_tokens;
  if (!lost_.ok()) {
    FinishRequest(active, lost_);
    return;
  }
  if (active.scores && !active.classifies && active.spec.prompt_ids.size() < 2) {
    FinishRequest(active, absl::OkStatus());
    return;
  }
  MakeSamples(active, tokenizer_);
  if (active.spec.begun.empty()) {
    SampleState* const first = active.samples.front().get();
    scheduler_.GiveHeadStart(first);
    scheduler_.Add(first);
  } else {
    ResumeRequest(active);
  }
}

void Engine::ResumeRequest(ActiveRequest& request) {
  for (const auto& sample : request.samples) {
    if (request.done) return;
    if (sample->finished) continue;
    const absl::StatusOr<FinishReason> reason = ReplayBegun(*sample);
    if (!reason.ok()) {
      FinishRequest(request, reason.status());
    } else if (*reason != FinishReason::kNone) {
      FinishSample(*sample, *reason);
    } else {
      // They share the prompt's blocks through the cache.
      scheduler_.Add(sample.get());
    }
  }
  if (request.num_unfinished == 0) FinishRequest(request, absl::OkStatus());
}

bool Engine::EncodeImages() {
  if (!encoder_.has_value()) return false;
  return encoder_->EncodeWanted(*live_, [this](const Sequence& sequence, absl::Status status) {
    FinishRequest(*static_cast<const SampleState&>(sequence).request, status);
  });
}

void Engine::Step() {
  // Rows of images are made and put together on the stream of the forward passes that read them.
  std::shared_ptr<void> entered;
  absl::Status prepared = Catch([&] {
    if (encoder_.has_value()) entered = runner_->Enter();
    return absl::OkStatus();
  });
  if (encoder_.has_value()) encoder_->BeginStep();
  const StepPlan& plan = scheduler_.Plan();
  if (plan.sequences.empty()) {
    if (EncodeImages()) return;
    // Limits and the cache's size rule it out; were it to happen, waiting would be for ever.
    FinishRequest(*requests_.begin()->second,
                  absl::InternalError("the scheduler found no room for the oldest request"));
    return;
  }
  auto& [items, rows, sampled, tokens] = lists_;
  items.clear();
  rows.clear();
  sampled.clear();
  int64_t logits_row = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    auto& sample = static_cast<SampleState&>(*planned.sequence);
    const ActiveRequest& request = *sample.request;
    RunItem item{.sequence = &sample, .num_tokens = planned.num_tokens};
    item.scores = request.scores && !request.classifies;
    item.classifies = request.classifies && planned.reaches_end();
    item.score_temperature = request.score_temperature;
    item.first_scored = request.first_scored;
    item.num_top_logprobs = request.scores ? request.spec.num_top_logprobs : 0;
    item.samples = !request.scores && planned.reaches_end();
    item.records_experts = request.spec.return_routed_experts;
    if (item.records_experts) routing_.AddCached(sample);
    if (prepared.ok() && sample.places != nullptr) {
      prepared = Catch([&] {
        item.image_rows = encoder_->RowsOf(*request.spec.images, sample.num_computed,
                                           sample.num_computed + item.num_tokens);
        return absl::OkStatus();
      });
    }
    items.push_back(item);
    if (!item.samples) continue;
    for (int32_t i = 0; i < sample.num_samples; ++i) {
      SampleState* target = sample.num_samples > 1 ? request.samples[i].get() : &sample;
      const double uniform = Uniform(request.seed, target->index, sample.num_sampled());
      rows.push_back({logits_row, request.spec.filter, uniform,
                      target->adjustments.has_value() ? &*target->adjustments : nullptr,
                      placeholder_ids_});
      sampled.push_back(target);
    }
    ++logits_row;
  }

  const CacheCopies copies{plan.block_copies, state_copies_};
  if (options_.ranks != nullptr && prepared.ok()) {
    const absl::Status sent =
        Catch([&] { return options_.ranks->Step(items, copies, LayoutOf(runner_->cache())); });
    if (!sent.ok()) {
      LoseRanks(sent);
      return;
    }
  }
  absl::StatusOr<StepOutput> output = [&]() -> absl::StatusOr<StepOutput> {
    if (!prepared.ok()) return prepared;
    const telemetry::ScopedSpan span(
        "forward", {{"sequences", plan.sequences.size()}, {"tokens", plan.num_tokens}});
    return runner_->Run(*live_, items, copies);
  }();
  state_copies_.clear();
  absl::Status computed = output.status();
  tokens.assign(rows.size(), {});
  if (computed.ok() && !rows.empty()) {
    const telemetry::ScopedSpan span("sample", {{"rows", rows.size()}});
    const bool wants_others =
        std::any_of(sampled.begin(), sampled.end(),
                    [](const SampleState* sample) { return sample->request->spec.wants_logits(); });
    computed = runner_->Sample(rows, wants_others, *output, absl::MakeSpan(tokens));
  }
  if (!computed.ok() && prepared.ok() && options_.ranks != nullptr) {
    // A rank that stops in the middle of a step leaves the others in a collective.
    LoseRanks(computed);
    return;
  }
  if (!computed.ok()) {
    telemetry::LogError("a step failed", {{"error", computed.ToString()}});
    for (const PlannedSequence& planned : plan.sequences) {
      planned.sequence->may_publish = false;  // its blocks may lack what the step was to copy
    }
    for (const PlannedSequence& planned : plan.sequences) {
      FinishRequest(*static_cast<SampleState*>(planned.sequence)->request, computed);
    }
    return;
  }
  scheduler_.Complete(plan);
  for (size_t i = 0; i < items.size(); ++i) {
    auto& sample = static_cast<SampleState&>(*plan.sequences[i].sequence);
    if (items[i].records_experts) {
      routing_.AddComputed(sample, sample.num_computed - items[i].num_tokens,
                           output->routed_experts[i]);
    }
    if (items[i].scores) {
      const int64_t first = FirstScoredOf(items[i], sample.num_computed - items[i].num_tokens);
      CollectScore(sample, first, output->scores[i], output->score_top_logprobs[i]);
    }
    if (items[i].classifies) CollectClass(sample, std::move(output->class_logits[i]));
    if (items[i].samples && !std::exchange(sample.request->prompt_computed, true)) {
      CountDown(*sample.request, sample.num_prompt_tokens);
    }
    if (items[i].samples && sample.num_samples > 1) ForkGroup(*sample.request);
  }
  const int64_t vocab_size = model_.spec().vocab_size;
  for (size_t i = 0; i < sampled.size(); ++i) {
    if (sampled[i]->request->spec.wants_logits()) {
      AddTopLogprobs(*sampled[i], tokens[i],
                     output->logits.const_data_ptr<float>() + rows[i].row * vocab_size, vocab_size);
    }
    Collect(*sampled[i], tokens[i]);
  }
  // After the forward pass, so that decoding does not wait for the images of the next step.
  EncodeImages();
}

void Engine::ForkGroup(ActiveRequest& request) {
  SampleState& first = *request.samples.front();
  first.num_samples = 1;
  for (size_t i = 1; i < request.samples.size(); ++i) {
    SampleState& copy = *request.samples[i];
    copy.tokens = first.tokens;
    copy.routed_experts = first.routed_experts;
    copy.routed_root = first.routed_root;
    copy.num_routed_blocks = first.num_routed_blocks;
    scheduler_.Fork(first, &copy);
    if (copy.state >= 0) state_copies_.emplace_back(first.state, copy.state);
  }
}

void Engine::Collect(SampleState& sample, const SampledToken& token) {
  ActiveRequest& request = *sample.request;
  if (request.done) return;
  if (token.id < 0) {
    FinishRequest(
        request, absl::InternalError(absl::StrCat("the model's logits are not finite with version ",
                                                  version_, "; the weights may have diverged")));
    return;
  }
  ++num_generated_tokens_;
  CountDown(request, 1);
  const absl::StatusOr<FinishReason> reason = AddToken(sample, token, version_, incarnation_);
  if (!reason.ok()) {
    FinishRequest(request, reason.status());
  } else if (*reason != FinishReason::kNone) {
    FinishSample(sample, *reason);
  } else if (request.spec.stream) {
    request.callbacks.on_chunk(TakeChunk(sample, FinishReason::kNone, routed_values_per_token_));
  }
}

void Engine::CollectScore(SampleState& sample, int64_t first, const std::vector<float>& logprobs,
                          const std::vector<std::vector<TokenLogprob>>& top_logprobs) {
  ActiveRequest& request = *sample.request;
  if (request.done) return;
  // A sequence that was preempted is computed again from its start.
  const auto num_known = static_cast<size_t>(first - request.first_scored);
  request.score_logprobs.resize(std::min(request.score_logprobs.size(), num_known));
  request.score_top_logprobs.resize(std::min(request.score_top_logprobs.size(), num_known));
  request.score_logprobs.insert(request.score_logprobs.end(), logprobs.begin(), logprobs.end());
  std::copy(top_logprobs.begin(), top_logprobs.end(),
            std::back_inserter(request.score_top_logprobs));
  if (sample.num_pending() == 0) FinishRequest(request, absl::OkStatus());
}

void Engine::CollectClass(SampleState& sample, std::vector<float> logits) {
  ActiveRequest& request = *sample.request;
  if (request.done) return;
  const bool is_finite =
      std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
  request.class_logits = std::move(logits);
  FinishRequest(request, is_finite ? absl::OkStatus()
                                   : absl::InternalError(absl::StrCat(
                                         "the reward model's logit is not finite with version ",
                                         version_, "; its weights may be damaged")));
}

void Engine::FinishSample(SampleState& sample, FinishReason reason) {
  ActiveRequest& request = *sample.request;
  scheduler_.Remove(&sample);
  sample.finished = true;
  CountDown(request, request.max_tokens - std::max<int64_t>(0, sample.num_sampled()));
  --request.num_unfinished;
  request.callbacks.on_chunk(TakeChunk(sample, reason, routed_values_per_token_));
  if (request.num_unfinished == 0) FinishRequest(request, absl::OkStatus());
}

void Engine::FinishRequest(ActiveRequest& request, const absl::Status& status) {
  if (request.done) return;
  request.done = true;
  for (const auto& sample : request.samples) scheduler_.Remove(sample.get());
  num_queued_tokens_ -= request.num_queued_tokens;
  const auto found = requests_.find(request.arrival);
  finished_.push_back(std::move(found->second));
  requests_.erase(found);
  {
    absl::MutexLock lock(&mu_);
    --num_requests_;
    image_bytes_ -= request.image_bytes();
  }
  UpdateInfo();
  if (!request.scores) {
    request.callbacks.on_done(status);
  } else if (status.ok()) {
    request.on_score(ScoreResult{std::move(request.score_logprobs),
                                 std::move(request.score_top_logprobs),
                                 std::move(request.class_logits), version_, incarnation_});
  } else {
    request.on_score(status);
  }
}

void Engine::CountDown(ActiveRequest& request, int64_t num_tokens) {
  request.num_queued_tokens -= num_tokens;
  num_queued_tokens_ -= num_tokens;
}

void Engine::AbortRequest(ActiveRequest& request) {
  if (request.scores) {
    FinishRequest(request, absl::AbortedError("the request was aborted"));
    return;
  }
  for (const auto& sample : request.samples) {
    if (!sample->finished) FinishSample(*sample, FinishReason::kAborted);
  }
}

void Engine::AbortAll() {
  for (auto& held : std::exchange(held_, {})) Enqueue(std::move(held), /*hold=*/false);
  while (!requests_.empty()) AbortRequest(*requests_.begin()->second);
}

std::vector<ActiveRequest*> Engine::BegunRequests() const {
  std::vector<ActiveRequest*> begun;
  for (const auto& [arrival, request] : requests_) {
    const auto has_begun = [this](const std::unique_ptr<SampleState>& sample) {
      return scheduler_.running().contains(sample.get()) || sample->num_sampled() > 0;
    };
    if (!request->scores &&
        std::any_of(request->samples.begin(), request->samples.end(), has_begun)) {
      begun.push_back(request.get());
    }
  }
  return begun;
}

void Engine::RestartScores() {
  // A score must come from one version: scores in flight restart.
  for (const auto& [arrival, request] : requests_) {
    if (!request->scores) continue;
    SampleState* sample = request->samples.front().get();
    scheduler_.Remove(sample);
    request->score_logprobs.clear();
    request->score_top_logprobs.clear();
    scheduler_.Add(sample);
  }
}

void Engine::UpdateInfo() {
  EngineInfo info;
  int64_t last = -1;
  for (const Sequence* sequence : scheduler_.running()) {
    info.num_running_requests += sequence->arrival != last ? 1 : 0;
    last = sequence->arrival;
  }
  info.num_waiting_requests =
      static_cast<int64_t>(requests_.size() + held_.size()) - info.num_running_requests;
  // By arrival: most often the first that is looked at.
  for (const auto& [arrival, request] : requests_) {
    if (request->prompt_computed) continue;
    info.oldest_wait = request->received;
    break;
  }
  info.paused = paused_;
  info.last_version = version_;
  info.incarnation = incarnation_;
  info.released = released_;
  info.num_queued_tokens = num_queued_tokens_;
  info.num_kv_blocks = blocks_.num_blocks();
  info.num_free_kv_blocks = blocks_.num_free();
  info.num_generated_tokens = num_generated_tokens_;
  if (encoder_.has_value()) info.images = {encoder_->stats(), pixels_->stats()};
  info.scheduler = scheduler_.stats();
  absl::MutexLock lock(&mu_);
  info_ = info;
}

}  // namespace tandem::rollout
