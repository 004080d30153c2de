#include "services/rollout/openai/prompt_scores.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/engine/limits.h"

namespace tandem::rollout::openai {

PromptScores::~PromptScores() {
  bool all_done = false;
  {
    absl::MutexLock lock(&state_->mu);
    all_done = state_->num_running == 0;
  }
  if (all_done) return;
  for (const int64_t handle : handles_) engine_.Cancel(handle);
}

absl::Status PromptScores::Add(const std::vector<int32_t>& prompt_ids, int32_t num_top_logprobs) {
  RETURN_IF_ERROR(CheckHasLogProbs(engine_.limits()));
  if (num_top_logprobs > kMaxTopLogprobs) {
    return rpc::InvalidField("top_logprobs", absl::StrCat("expected 0 to ", kMaxTopLogprobs,
                                                          ", found ", num_top_logprobs));
  }
  size_t index = 0;
  {
    absl::MutexLock lock(&state_->mu);
    index = state_->results.size();
    state_->results.emplace_back();
    ++state_->num_running;
  }
  const absl::StatusOr<int64_t> handle =
      engine_.Score({.token_ids = prompt_ids, .num_top_logprobs = num_top_logprobs},
                    [state = state_, index](absl::StatusOr<ScoreResult> result) {
                      absl::MutexLock lock(&state->mu);
                      --state->num_running;
                      state->status.Update(result.status());
                      if (result.ok()) state->results[index] = *std::move(result);
                    });
  if (!handle.ok()) {
    absl::MutexLock lock(&state_->mu);
    --state_->num_running;
    return handle.status();
  }
  handles_.push_back(*handle);
  return absl::OkStatus();
}

absl::StatusOr<bool> PromptScores::Wait(absl::Time until) {
  State& state = *state_;
  absl::MutexLock lock(&state.mu);
  const auto is_over = [&state] {
    state.mu.AssertHeld();
    return state.num_running == 0 || !state.status.ok();
  };
  state.mu.AwaitWithDeadline(absl::Condition(&is_over), until);
  RETURN_IF_ERROR(state.status);
  return state.num_running == 0;
}

std::vector<ScoreResult> PromptScores::Take() {
  absl::MutexLock lock(&state_->mu);
  return std::move(state_->results);
}

}  // namespace tandem::rollout::openai
