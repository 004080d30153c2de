// Dynamic sampling of DAPO (2503.14476, section 3.2): a group whose completions all score the same
// has zero advantages and no learning signal, so another prompt replaces it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GROUP_FILTER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GROUP_FILTER_H_

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Whether the group's completions differ in what `estimator` learns from: in the metric or, with
// gdpo, which compares each reward on its own, in a part of it. A group of one always does, as in
// verl.
bool Differs(const Group& group, config::v1::FilterMetric metric,
             config::v1::AdvEstimator estimator);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GROUP_FILTER_H_
