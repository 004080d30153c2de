// Top log-probs of a row of logits.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_TOP_LOGPROBS_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_TOP_LOGPROBS_H_

#include <cstdint>
#include <vector>

namespace tandem::rollout {

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0.0f;  // log softmax(logits)[id]
};

// Returns the `count` top tokens of logits [vocab_size], best first, lower id first on ties.
// Derives the row's log-sum-exp from `known`, a token with its log-prob, so both agree.
std::vector<TokenLogprob> TopLogprobs(const float* logits, int64_t vocab_size, int64_t count,
                                      const TokenLogprob& known);

// How many tokens of logits [vocab_size] rank at or before `id`: 1 for the likeliest.
int64_t RankOf(const float* logits, int64_t vocab_size, int32_t id);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_TOP_LOGPROBS_H_
