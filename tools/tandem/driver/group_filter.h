// Dynamic sampling of DAPO (2503.14476, section 3.2): a group whose completions all score the same
// has zero advantages and no learning signal, so another prompt replaces it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GROUP_FILTER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GROUP_FILTER_H_

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Whether the group's completions differ in the metric. A group of one always does, as in verl.
bool Differs(const Group& group, config::v1::FilterMetric metric);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GROUP_FILTER_H_
