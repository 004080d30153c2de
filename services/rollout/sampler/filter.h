// Top-k, top-p and min-p filters, as thresholds in rank order.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_H_

#include <cstdint>
#include <vector>

#include "services/rollout/sampler/candidates.h"

namespace tandem::rollout {

// A row of logits with finite maximum, as input of the filters.
struct Row {
  const float* logits = nullptr;
  int64_t size = 0;
  float maximum = 0.0f;
  float minimum = 0.0f;
  float inverse_temperature = 1.0f;
};

// Sets `kept` to the top k tokens, in id order; 1 <= k <= row.size. One pass over the row with a
// rising threshold; memory 2k.
void TopK(const Row& row, int64_t k, std::vector<Candidate>& kept);

// Returns the last token, by rank, of the smallest set of top tokens that holds the fraction
// `top_p` of the total weight: of a candidate list, or of a full row (by a histogram of the
// weights; sorts only the bin in which the fraction is reached).
Candidate TopPLast(const Row& row, const std::vector<Candidate>& candidates, double top_p);
Candidate TopPLast(const Row& row, double top_p);

// Returns the last rank at which a token is at least min_p times as likely as the top one; min_p >
// 0.
Candidate MinPLast(const Row& row, double min_p);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_H_
