// A sample of several turns in the form of one of a single turn, as the page draws it.
#ifndef TANDEM_TOOLS_TANDEM_VIEW_FLAT_SAMPLE_H_
#define TANDEM_TOOLS_TANDEM_VIEW_FLAT_SAMPLE_H_

#include "nlohmann/json.hpp"

namespace tandem::view {

// If a row of rollouts/ has `segments`, replaces them by prompt_ids, response_ids, logprobs (null for
// what was not sampled), policy_versions, token_rewards if there are any, and `observed`, the runs
// [begin, end] of response_ids that the environment said. The segments' images follow the row's.
// Anything malformed is left out, not refused.
void FlattenSample(nlohmann::json& sample);

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_FLAT_SAMPLE_H_
