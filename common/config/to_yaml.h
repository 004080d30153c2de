// Writes a configuration as YAML that LoadRunConfig() reads back to an equal message.
#ifndef TANDEM_COMMON_CONFIG_TO_YAML_H_
#define TANDEM_COMMON_CONFIG_TO_YAML_H_

#include <string>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// States every value, in the order of the proto; an empty list is []. Numbers are exact. Omits
// values that were never set (none, in LoadRunConfig()'s results), so that their defaults apply.
std::string ToYaml(const v1::RunConfig& config);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_TO_YAML_H_
