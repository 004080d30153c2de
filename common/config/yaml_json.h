// Writes a YAML mapping as JSON, for keys whose value is a JSON object.
#ifndef TANDEM_COMMON_CONFIG_YAML_JSON_H_
#define TANDEM_COMMON_CONFIG_YAML_JSON_H_

#include <yaml-cpp/yaml.h>

#include <string>

namespace tandem::config {

// Sets `*json` and returns "", or leaves it unchanged and returns what was expected and what was
// found. Plain scalars become null, booleans and numbers where they read as such in a configuration,
// and quoted ones text; keys keep their order. Bounded in depth and size, so it terminates for any
// aliases.
std::string YamlToJson(const YAML::Node& mapping, std::string* json);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_YAML_JSON_H_
