#include "services/rollout/openai/generation_calls.h"

#include <utility>

#include "common/rpc/new_uuid.h"
#include "common/status/status_macros.h"

namespace tandem::rollout::openai {

GenerationCalls::~GenerationCalls() {
  bool all_done = false;
  {
    absl::MutexLock lock(&state_->mu);
    state_->abandoned = true;
    all_done = state_->num_running == 0;
  }
  if (all_done) return;
  for (const int64_t handle : handles_) engine_.Cancel(handle);
}

absl::Status GenerationCalls::Add(GenerationRequest request, int32_t first_choice) {
  if (request.id.empty()) request.id = rpc::NewUuid();
  {
    absl::MutexLock lock(&state_->mu);
    ++state_->num_running;
  }
  // Touched by the engine's thread alone, or before it knows of the request.
  const auto observed = std::make_shared<RolloutMetrics::Request>(metrics_);
  const absl::StatusOr<int64_t> handle = engine_.Submit(
      std::move(request), {.on_chunk =
                               [state = state_, observed, first_choice](SampleChunk chunk) {
                                 observed->OnChunk(chunk);
                                 chunk.index += first_choice;
                                 absl::MutexLock lock(&state->mu);
                                 if (!state->abandoned) {
                                   state->pending.Add(std::move(chunk));
                                 }
                               },
                           .on_done =
                               [state = state_, observed](absl::Status status) {
                                 observed->OnDone(status);
                                 absl::MutexLock lock(&state->mu);
                                 --state->num_running;
                                 state->status.Update(status);
                               }});
  if (!handle.ok()) {
    observed->OnDone(handle.status());
    absl::MutexLock lock(&state_->mu);
    --state_->num_running;
    return handle.status();
  }
  handles_.push_back(*handle);
  return absl::OkStatus();
}

absl::StatusOr<GenerationCalls::News> GenerationCalls::Next(absl::Time until) {
  State& state = *state_;
  absl::MutexLock lock(&state.mu);
  const auto has_news = [&state] {
    state.mu.AssertHeld();
    return !state.pending.empty() || state.num_running == 0 || !state.status.ok();
  };
  state.mu.AwaitWithDeadline(absl::Condition(&has_news), until);
  RETURN_IF_ERROR(state.status);
  News news;
  if (!state.pending.empty()) news.chunk = state.pending.Take();
  news.done = state.num_running == 0 && state.pending.empty();
  return news;
}

}  // namespace tandem::rollout::openai
