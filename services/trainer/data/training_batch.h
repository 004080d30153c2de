// TrainingBatch: the samples of one step as the algorithm sees them: token sequences, which tokens
// are trained on, and the data of each. Every rank holds the same batch and computes its share.
#ifndef TANDEM_SERVICES_TRAINER_DATA_TRAINING_BATCH_H_
#define TANDEM_SERVICES_TRAINER_DATA_TRAINING_BATCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tandem/common/v1/sample.pb.h"

namespace tandem::trainer {

class BatchImages;

// One of several rewards of a sequence.
struct RewardPart {
  std::string name;
  double value = 0;  // before the weight
  double weight = 1;
};

struct Sequence {
  std::vector<int64_t> token_ids;
  // Positions of the trained-on tokens: sampled, in the loss mask, and with a token before them to
  // predict them from. Ascending.
  std::vector<int64_t> trained;
  // One for each of `trained`.
  std::vector<float> rollout_logprobs;  // NaN where the rollout gave none
  std::vector<float> teacher_logprobs;  // empty if a segment gave none
  // The teacher's likeliest ids, num_teacher_top for each of `trained`, and their log-probs; empty if
  // a segment gave none.
  std::vector<int64_t> teacher_top_ids;
  std::vector<float> teacher_top_logprobs;
  int64_t num_teacher_top = 0;
  // Also one for each of `trained`; empty until known.
  std::vector<float> old_logprobs;        // under the policy at the step's start
  std::vector<float> ref_logprobs;        // under the reference
  std::vector<float> values;              // the critic's predictions
  std::vector<float> returns;             // the critic's targets
  std::vector<float> importance_weights;  // factors of the policy loss; empty means 1
  std::vector<float> advantages;
  std::vector<float> entropies;       // under the policy at the step's start, in nats
  std::vector<float> sum_pi_squared;  // of the probabilities of the policy at the step's start
  std::vector<float> selected;        // 1 for the tokens that PolicyLossKind::select chose
  // Reward of each of `trained`. As the sample states them, empty if it does not; then, from
  // SpreadRewards() on, with the rest of `reward` on the last one; later minus the KL penalties.
  std::vector<double> token_rewards;
  // Of each of token_ids (common/model/routed_experts.h); empty if all are unknown.
  std::vector<uint16_t> routed_experts;
  // Its images in order, as indices into TrainingBatch::images, and their placeholders: positions of
  // tokens, ascending. A sampled token with the placeholder's id is text.
  std::vector<int64_t> images;
  std::vector<int64_t> image_tokens;
  double temperature = 1.0;
  double reward = 0.0;                    // as judged
  double kl_penalty = 0.0;                // sum of the tokens' KL penalties
  std::optional<double> baseline_reward;  // of the greedy completion of the prompt
  std::vector<RewardPart> reward_parts;   // in order of names; empty if unknown
  int64_t group = 0;                      // index from 0, in order of appearance
  int64_t prompt_tokens = 0;              // tokens before the first sampled one
  int64_t response_tokens = 0;            // sampled tokens
  bool is_cut = false;                    // the completion ended at the token limit

  // Number of tokens the model must read: no prediction depends on later ones.
  int64_t num_input_tokens() const { return trained.empty() ? 0 : trained.back(); }
  double total_reward() const { return reward - kl_penalty; }
};

// Keeps only the entries of `trained` whose `keep` is true, with their per-token data. A dropped
// token's reward passes to the kept token before it, or else after it. `keep`: one for each of
// `trained`.
void KeepTokens(Sequence& sequence, const std::vector<bool>& keep);

struct TrainingBatch {
  std::vector<Sequence> sequences;
  int64_t num_groups = 0;
  std::shared_ptr<BatchImages> images;  // null: no sequence has any

  int64_t num_trained_tokens() const;
  int64_t num_tokens() const;
};

// Requires validated samples. A sample without a group_id is its own group. A temperature of 0
// counts as 1. `images`: those that the samples name; null: the batch is made without them, to be
// looked at, not computed.
TrainingBatch MakeTrainingBatch(absl::Span<const common::v1::Sample> samples,
                                std::shared_ptr<BatchImages> images = nullptr);

// A sequence all of whose tokens but the first are predicted.
Sequence MakeScoredSequence(std::vector<int64_t> token_ids, double temperature);
// Gives it images, as indices into `batch`, whose placeholders are all tokens with their id.
void AddImages(std::vector<int64_t> images, BatchImages& batch, Sequence& sequence);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_TRAINING_BATCH_H_
