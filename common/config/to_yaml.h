// A configuration as YAML that LoadRunConfig() reads back to an equal message.
#ifndef TANDEM_COMMON_CONFIG_TO_YAML_H_
#define TANDEM_COMMON_CONFIG_TO_YAML_H_

#include <string>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// States every value, in the order of the proto; an empty list is []. Numbers are exact. A value
// that was never set (none, in what LoadRunConfig() returns) is left out, so that its default
// applies.
std::string ToYaml(const v1::RunConfig& config);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_TO_YAML_H_
