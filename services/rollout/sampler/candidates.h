// A token with its logit. Tokens rank by logit, then by id.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_CANDIDATES_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_CANDIDATES_H_

#include <cstdint>

namespace tandem::rollout {

struct Candidate {
  float logit;
  int32_t id;
};

inline bool RanksBefore(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_CANDIDATES_H_
