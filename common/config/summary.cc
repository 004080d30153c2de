#include "common/config/summary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/text/count.h"

namespace tandem::config {

BatchArithmetic ComputeBatch(const v1::RunConfig& config) {
  BatchArithmetic out;
  out.prompts = config.data().train_batch_size();
  out.samples = out.prompts * config.rollout().n();
  const int64_t mini_batch = config.actor().ppo_mini_batch_size();
  out.mini_batch_prompts = mini_batch > 0 ? std::min(mini_batch, out.prompts) : out.prompts;
  if (out.mini_batch_prompts > 0) {
    const int64_t mini_batches =
        (out.prompts + out.mini_batch_prompts - 1) / out.mini_batch_prompts;
    out.optimizer_steps = mini_batches * std::max<int64_t>(1, config.actor().ppo_epochs());
  }
  return out;
}

std::string DescribeBatch(const v1::RunConfig& config) {
  const BatchArithmetic batch = ComputeBatch(config);
  using text::Count;
  return absl::StrCat(Count(batch.prompts, "prompt"), " x ", Count(config.rollout().n(), "sample"),
                      " = ", Count(batch.samples, "sample"), " = ",
                      Count(batch.optimizer_steps, "optimizer step"));
}

bool PlaysEpisodes(const v1::RunConfig& config) {
  const v1::EnvironmentName name = config.environment().name();
  return name != v1::ENVIRONMENT_NAME_UNSPECIFIED && name != v1::ENVIRONMENT_NAME_SINGLE_TURN;
}

namespace {

bool EpisodesAreLimited(const v1::RunConfig& config) {
  return PlaysEpisodes(config) && config.environment().max_tokens() > 0;
}

}  // namespace

int64_t LongestCompletion(const v1::RunConfig& config) {
  return EpisodesAreLimited(config) ? config.environment().max_tokens()
                                    : config.rollout().max_tokens();
}

std::string LongestCompletionKey(const v1::RunConfig& config) {
  return EpisodesAreLimited(config) ? "environment.max_tokens" : "rollout.max_tokens";
}

}  // namespace tandem::config
