// Which tokens a request may still draw: top-k, top-p and min-p as a threshold in the order of
// ranks.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_H_

#include <cstdint>
#include <vector>

#include "services/rollout/sampler/candidates.h"

namespace tandem::rollout {

// A row of finite maximum, as the filters see it.
struct Row {
  const float* logits = nullptr;
  int64_t size = 0;
  float maximum = 0.0f;
  float minimum = 0.0f;
  float inverse_temperature = 1.0f;
};

// Sets `kept` to the k tokens that rank first, in the order of ids; 1 <= k <= row.size. One pass
// over the row with a rising threshold; memory 2k.
void TopK(const Row& row, int64_t k, std::vector<Candidate>& kept);

// The last token, by rank, of the smallest set of likeliest tokens that holds the share `top_p` of
// the whole weight: of a list of candidates, and of a whole row (by a histogram of the weights;
// only the bin in which the share is reached is sorted).
Candidate TopPLast(const Row& row, const std::vector<Candidate>& candidates, double top_p);
Candidate TopPLast(const Row& row, double top_p);

// The rank before which every token is at least min_p times as likely as the likeliest; min_p > 0.
Candidate MinPLast(const Row& row, double min_p);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_H_
