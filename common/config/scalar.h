// Converts one YAML scalar into one field of a message.
#ifndef TANDEM_COMMON_CONFIG_SCALAR_H_
#define TANDEM_COMMON_CONFIG_SCALAR_H_

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

namespace tandem::config {

// Sets the field (appends, if it is repeated) from `node` and returns "", or leaves the message
// unchanged and returns what was expected and what was found. Numbers must be unquoted; strings
// take any scalar.
std::string SetScalar(const YAML::Node& node, const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message* message);

// An enum value as configurations write it: LOSS_AGG_MODE_TOKEN_MEAN -> token_mean.
std::string EnumValueName(const google::protobuf::EnumValueDescriptor& value);

// All values but the unspecified one.
std::vector<std::string> EnumValueNames(const google::protobuf::EnumDescriptor& type);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_SCALAR_H_
