// Where each value was stated, for messages.
#ifndef TANDEM_COMMON_CONFIG_PLACE_H_
#define TANDEM_COMMON_CONFIG_PLACE_H_

#include <map>
#include <string>

namespace tandem::config {

// Key path ("actor.optim.lr") -> place ("run.yaml:12", "--set actor.optim.lr=3"). Omits keys that
// kept their default.
using Places = std::map<std::string, std::string>;

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_PLACE_H_
