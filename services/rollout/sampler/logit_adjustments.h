// Changes of logits before a token is drawn: biases of tokens, and penalties for tokens that are
// there already.
//
//   const auto base = std::make_shared<const AdjustmentBase>(params, prompt_ids);
//   LogitAdjustments adjustments(base);
//   adjustments.Count(token.id);
//   adjustments.Apply(logits, vocab_size);
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_LOGIT_ADJUSTMENTS_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_LOGIT_ADJUSTMENTS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tandem::rollout {

// Applied to a token's logit in this order, in float32. OpenAI defines the presence and frequency
// penalties and the bias, vLLM the repetition penalty.
struct PenaltyParams {
  std::vector<std::pair<int32_t, float>> logit_bias;  // added, by token; each token once
  double repetition =
      1.0;  // divides a positive logit, multiplies another one: of tokens of the prompt
            // or the completion
  double frequency = 0.0;  // subtracted for each time that the completion has the token
  double presence = 0.0;   // subtracted if the completion has the token

  bool any() const {
    return !logit_bias.empty() || repetition != 1.0 || frequency != 0.0 || presence != 0.0;
  }
};

// What a request's samples share; immutable.
class AdjustmentBase {
 public:
  AdjustmentBase(const PenaltyParams& params, const std::vector<int32_t>& prompt_ids);

 private:
  friend class LogitAdjustments;
  struct Entry {
    float bias = 0.0f;
    bool in_prompt = false;  // only if there is a repetition penalty
  };
  float repetition_;
  float frequency_;
  float presence_;
  absl::flat_hash_map<int32_t, Entry> entries_;
};

// The adjustments of one sample. Used by one thread at a time.
class LogitAdjustments {
 public:
  explicit LogitAdjustments(std::shared_ptr<const AdjustmentBase> base) : base_(std::move(base)) {}

  // Adds a token of the completion.
  void Count(int32_t id) { ++counts_[id]; }

  // Changes logits [vocab_size] in place; reads and writes those of the concerned tokens only.
  void Apply(float* logits, int64_t vocab_size) const;

 private:
  float Adjusted(float logit, const AdjustmentBase::Entry& entry, int32_t count) const;

  std::shared_ptr<const AdjustmentBase> base_;
  absl::flat_hash_map<int32_t, int32_t> counts_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_LOGIT_ADJUSTMENTS_H_
