// The word for each transport, the same in configurations, logs and messages.
#ifndef TANDEM_COMMON_WEIGHTS_TRANSPORT_NAME_H_
#define TANDEM_COMMON_WEIGHTS_TRANSPORT_NAME_H_

#include <string>

#include "tandem/common/v1/weights.pb.h"

namespace tandem::weights {

// "broadcast", "reshard", "delta" or "stream"; "unspecified", or the number of one that a newer
// peer knows.
std::string TransportName(common::v1::Transport transport);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TRANSPORT_NAME_H_
