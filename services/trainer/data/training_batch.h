// TrainingBatch: the samples of one step as the algorithm sees them: sequences of tokens, which of
// these are trained on, and what is known about each. Every rank holds the same batch and computes
// its share of it.
#ifndef TANDEM_SERVICES_TRAINER_DATA_TRAINING_BATCH_H_
#define TANDEM_SERVICES_TRAINER_DATA_TRAINING_BATCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tandem/common/v1/sample.pb.h"

namespace tandem::trainer {

struct Sequence {
  std::vector<int64_t> token_ids;
  // Positions of the tokens that are trained on: sampled, in the loss mask, and with a token before
  // them to be predicted from. Ascending.
  std::vector<int64_t> trained;
  // One for each of `trained`.
  std::vector<float> rollout_logprobs;  // NaN where the rollout gave none
  // The same, empty until known.
  std::vector<float> old_logprobs;        // of the policy at the step's start
  std::vector<float> ref_logprobs;        // of the reference
  std::vector<float> values;              // of the critic
  std::vector<float> returns;             // what the critic is to say
  std::vector<float> importance_weights;  // of the policy loss; empty means 1
  std::vector<float> advantages;
  // What each token earned: the completion's reward at the last, less the price of divergence.
  std::vector<double> token_rewards;
  double temperature = 1.0;
  double reward = 0.0;                    // as judged
  double kl_penalty = 0.0;                // price of its divergence
  std::optional<double> baseline_reward;  // of the greedy completion of the prompt
  int64_t group = 0;                      // from 0, in order of appearance
  int64_t prompt_tokens = 0;              // before the first sampled one
  int64_t response_tokens = 0;            // sampled
  bool is_cut = false;                    // it ended at the limit of tokens

  // Tokens that the model must see: nothing depends on what comes after the last prediction.
  int64_t num_input_tokens() const { return trained.empty() ? 0 : trained.back(); }
  double total_reward() const { return reward - kl_penalty; }
};

// Leaves only those of `trained` that are kept, with all that is known of them. What a token that
// goes had earned passes to the one kept before it, or else after it. keep: one for each of
// `trained`.
void KeepTokens(Sequence& sequence, const std::vector<bool>& keep);

struct TrainingBatch {
  std::vector<Sequence> sequences;
  int64_t num_groups = 0;

  int64_t num_trained_tokens() const;
  int64_t num_tokens() const;
};

// The samples have been validated. Samples without a group_id are groups of their own. A
// temperature of 0 counts as 1.
TrainingBatch MakeTrainingBatch(absl::Span<const common::v1::Sample> samples);

// A sequence all of whose tokens but the first are predicted.
Sequence MakeScoredSequence(std::vector<int64_t> token_ids, double temperature);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_TRAINING_BATCH_H_
