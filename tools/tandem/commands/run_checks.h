// Checks of a run as a whole, before anything starts: configuration, model, tokenizer and data
// together. They find mistakes that would train something else than was meant, or nothing.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_RUN_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_RUN_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::commands {

struct CheckedRun {
  const config::v1::RunConfig& config;
  const model::ModelSpec& spec;
  const tokenizer::Tokenizer* tokenizer;  // null: the model's folder has none
  const driver::PromptSource& train;
  const driver::PromptSource* test;  // null: no evaluation
  bool reinforcement = true;         // `tandem train`: completions are sampled and compared
  bool by_preference = false;        // `tandem dpo`: rows are pairs
  bool samples_test = true;          // evaluations sample completions of the test rows

  bool rewards_test() const { return test != nullptr && samples_test; }
};

// Returns one sentence for each setting that is allowed and probably not meant. INVALID_ARGUMENT
// names file and row of tokens that the model does not have, and of a given sequence that is longer
// than its positions; and data whose answers, or completions to train on, are all empty.
absl::StatusOr<std::vector<std::string>> CheckRun(const CheckedRun& run);

// Whether the estimator compares the samples of one prompt: the trainer's
// AdvantageKind::compares_samples.
bool ComparesSamples(config::v1::AdvEstimator estimator);

// The longest sequence that the rollouts take: rollout.max_model_len, or what the model allows.
int64_t LongestSequence(const config::v1::RunConfig& config, const model::ModelSpec& spec);

// The number of tokens of the longest prompt.
int64_t LongestPrompt(const driver::PromptSource& source);

// Processes that --local starts.
struct LocalProcesses {
  int64_t trainer_ranks = 0;
  int64_t rollout_ranks = 0;
  int cores = 1;  // that they may use
};

// Trainer and rollouts mostly take turns, so the larger of the two counts. Returns a sentence if
// there are more processes than cores, "" otherwise; RESOURCE_EXHAUSTED above 16 per core, unless
// `force` is set.
absl::StatusOr<std::string> CheckProcesses(const LocalProcesses& processes, bool force);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_RUN_CHECKS_H_
