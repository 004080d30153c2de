#include "services/rollout/sampler/top_logprobs.h"

#include <algorithm>

namespace tandem::rollout {

std::vector<TokenLogprob> TopLogprobs(const float* logits, int64_t vocab_size, int64_t count,
                                      const TokenLogprob& known) {
  count = std::min(count, vocab_size);
  std::vector<TokenLogprob>
      top;  // a heap whose front is the least likely; holds logits until the end
  if (count <= 0) return top;
  const auto likelier = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
  };
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (static_cast<int64_t>(top.size()) == count) {
      if (logits[id] <= top.front().logprob) continue;
      std::pop_heap(top.begin(), top.end(), likelier);
      top.pop_back();
    }
    top.push_back({static_cast<int32_t>(id), logits[id]});
    std::push_heap(top.begin(), top.end(), likelier);
  }
  std::sort_heap(top.begin(), top.end(), likelier);
  const float log_sum_exp = logits[known.id] - known.logprob;
  for (TokenLogprob& token : top) {
    // The known token has one log-prob, without another rounding.
    token.logprob = token.id == known.id ? known.logprob : token.logprob - log_sum_exp;
  }
  return top;
}

int64_t RankOf(const float* logits, int64_t vocab_size, int32_t id) {
  const float logit = logits[id];
  const int64_t before = std::count_if(logits, logits + id, [&](float x) { return x >= logit; });
  const int64_t after =
      std::count_if(logits + id + 1, logits + vocab_size, [&](float x) { return x > logit; });
  return 1 + before + after;
}

}  // namespace tandem::rollout
