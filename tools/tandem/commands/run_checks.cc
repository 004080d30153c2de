#include "tools/tandem/commands/run_checks.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/scalar.h"
#include "common/config/summary.h"
#include "common/config/teacher.h"
#include "common/model/image_places.h"
#include "common/model/rotary_frequencies.h"
#include "common/rank_setup/router_checks.h"
#include "common/rank_setup/vision_checks.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "tools/tandem/commands/best_metric_check.h"
#include "tools/tandem/commands/data_checks.h"

namespace tandem::commands {
namespace {

using text::Count;

// Beyond this the processes spend their time on being switched, and memory runs out first.
constexpr int64_t kMostProcessesPerCore = 16;

void CheckLengths(const CheckedRun& run, std::vector<std::string>& warnings) {
  const int64_t max_tokens = config::LongestCompletion(run.config);
  const int64_t positions = LongestSequence(run.config, run.spec);
  int64_t longest = run.reinforcement ? LongestPrompt(run.train) : 0;
  if (run.rewards_test()) longest = std::max(longest, LongestPrompt(*run.test));
  const int64_t room = positions - longest;
  if (room >= max_tokens) return;
  warnings.push_back(absl::StrFormat(
      "%s: the longest prompt has %s and the model %s, so its completions end after "
      "%s, not %d",
      config::LongestCompletionKey(run.config), Count(longest, "token"),
      Count(positions, "position"), Count(std::max<int64_t>(0, room), "token"), max_tokens));
}

// Two prompts with the same hash are the same, but for one chance in 2^64.
size_t HashOf(const driver::Prompt& prompt) {
  const std::vector<uint32_t>& ids = prompt.token_ids;
  std::string bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint32_t));
  for (const driver::PromptImage& image : prompt.images) bytes += image.digest;
  return std::hash<std::string>()(bytes);
}

void CheckOverlap(const CheckedRun& run, std::vector<std::string>& warnings) {
  std::unordered_set<size_t> seen;
  for (const driver::Prompt& prompt : run.train.prompts()) seen.insert(HashOf(prompt));
  const std::vector<driver::Prompt>& test = run.test->prompts();
  const auto shared = std::count_if(test.begin(), test.end(), [&](const driver::Prompt& prompt) {
    return seen.contains(HashOf(prompt));
  });
  if (shared == 0) return;
  warnings.push_back(absl::StrFormat(
      "data.test_files: %d of %s %s also in data.train_files; the evaluation does "
      "not measure what was not trained on",
      shared, Count(static_cast<int64_t>(test.size()), "prompt"), shared == 1 ? "is" : "are"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckRun(const CheckedRun& run) {
  const int64_t vocab_size = run.spec.vocab_size;
  std::vector<std::string> warnings;
  RETURN_IF_ERROR(CheckRows(run, warnings));
  RETURN_IF_ERROR(CheckBestMetric(run));
  RETURN_IF_ERROR(setup::CheckRouters(run.config, run.spec));
  RETURN_IF_ERROR(setup::CheckVision(run.config, run.spec));
  if (run.reinforcement && run.spec.vision.has_value()) {
    const config::v1::RolloutConfig& rollout = run.config.rollout();
    RETURN_IF_ERROR(model::CheckStepTokens(*run.spec.vision, rollout.max_num_seqs(),
                                           rollout.max_num_batched_tokens()));
  }
  RETURN_IF_ERROR(setup::CheckRoutersOf(run.by_preference   ? "dpo"
                                        : run.reinforcement ? "train"
                                                            : "sft",
                                        run.config.actor()));
  const config::v1::AdvEstimator estimator = run.config.algorithm().adv_estimator();
  if (run.reinforcement && estimator == config::v1::ADV_ESTIMATOR_GDPO &&
      run.config.reward().rewards_size() == 0) {
    return absl::InvalidArgumentError(
        "algorithm.adv_estimator: gdpo normalises several rewards one by one; list them, with "
        "their weights, in reward.rewards, or use grpo for one reward");
  }
  if (run.tokenizer != nullptr && static_cast<int64_t>(run.tokenizer->vocab_size()) > vocab_size) {
    warnings.push_back(absl::StrFormat(
        "model.path: the tokenizer has %d tokens and the model %d (vocab_size of its config.json); "
        "text that needs the others is refused",
        run.tokenizer->vocab_size(), vocab_size));
  }
  const int64_t num_prompts = run.train.epoch_size();
  const int64_t batch = run.config.data().train_batch_size();
  if (num_prompts < batch) {
    warnings.push_back(absl::StrFormat(
        "data.train_batch_size: %d, but there %s %s; every step repeats each about %d times", batch,
        num_prompts == 1 ? "is" : "are", Count(num_prompts, "prompt"),
        (batch + num_prompts - 1) / num_prompts));
  }
  if (run.reinforcement && run.config.rollout().n() == 1 && ComparesSamples(estimator) &&
      config::LearnsFromRewards(run.config)) {
    warnings.push_back(absl::StrCat(
        "rollout.n: 1, but algorithm.adv_estimator ",
        config::EnumValueName(*config::v1::AdvEstimator_descriptor()->FindValueByNumber(estimator)),
        " compares the samples of a prompt; with one there is nothing to compare with",
        estimator == config::v1::ADV_ESTIMATOR_GRPO_PASSK
            ? ", and every advantage is 0. "
            : ": its advantage is the bare reward, without a baseline. ",
        "Set rollout.n to 4 or more, or use reinforce_plus_plus or remax"));
  }
  if (run.reinforcement || run.rewards_test()) CheckLengths(run, warnings);
  if (run.test != nullptr) CheckOverlap(run, warnings);
  return warnings;
}

bool ComparesSamples(config::v1::AdvEstimator estimator) {
  switch (estimator) {
    case config::v1::ADV_ESTIMATOR_GRPO:
    case config::v1::ADV_ESTIMATOR_RLOO:
    case config::v1::ADV_ESTIMATOR_OPO:
    case config::v1::ADV_ESTIMATOR_GPG:
    case config::v1::ADV_ESTIMATOR_REINFORCE_PLUS_PLUS_BASELINE:
    case config::v1::ADV_ESTIMATOR_GRPO_PASSK:
    case config::v1::ADV_ESTIMATOR_GDPO:
    case config::v1::ADV_ESTIMATOR_OPTIMAL_TOKEN_BASELINE:
    case config::v1::ADV_ESTIMATOR_TIR_OPTIMAL_TOKEN_BASELINE:
      return true;
    default:
      return false;
  }
}

int64_t LongestSequence(const config::v1::RunConfig& config, const model::ModelSpec& spec) {
  const int64_t stated = config.rollout().max_model_len();
  const int64_t most = model::LongestGeneration(spec);
  return stated > 0 ? std::min(stated, most) : most;
}

int64_t LongestPrompt(const driver::PromptSource& source) {
  size_t longest = 0;
  for (const driver::Prompt& prompt : source.prompts()) {
    longest = std::max(longest, prompt.token_ids.size());
  }
  return static_cast<int64_t>(longest);
}

absl::StatusOr<std::string> CheckProcesses(const LocalProcesses& processes, bool force) {
  const int64_t most = std::max(processes.trainer_ranks, processes.rollout_ranks);
  const char* const key =
      processes.trainer_ranks >= processes.rollout_ranks ? "trainer.ranks" : "rollout.replicas";
  if (most <= processes.cores) return "";
  std::string problem =
      absl::StrFormat("%s: --local starts %s that compute at once, on %s", key,
                      Count(most, "process", "processes"), Count(processes.cores, "core"));
  if (most > kMostProcessesPerCore * processes.cores && !force) {
    return absl::ResourceExhaustedError(
        absl::StrCat(problem, "; lower it, or start the run all the same with --force"));
  }
  return absl::StrCat(problem, "; more processes than cores are slower, not faster");
}

}  // namespace tandem::commands
