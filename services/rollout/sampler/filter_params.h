// Filters for the tokens that may be drawn.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_PARAMS_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_PARAMS_H_

#include <cstdint>

namespace tandem::rollout {

// Filters apply in this order, each to the previous one's result: top_k, top_p, min_p. On equal
// logits the lower id ranks higher.
struct FilterParams {
  double temperature = 1.0;  // 0: greedy, the lowest id on ties
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // in (0, 1]
  double min_p = 0.0;        // in [0, 1]
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_FILTER_PARAMS_H_
