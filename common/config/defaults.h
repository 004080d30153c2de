// The text of common/config/defaults.yaml, which the build compiles into the library.
#ifndef TANDEM_COMMON_CONFIG_DEFAULTS_H_
#define TANDEM_COMMON_CONFIG_DEFAULTS_H_

namespace tandem::config {

extern const char kDefaultsYaml[];

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_DEFAULTS_H_
