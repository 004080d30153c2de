// Where each rank of a rollout replica receives weights.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RANK_ADDRESSES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RANK_ADDRESSES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::driver {

// HOST:PORT of every rank, rank 0 first, as the replica at `address`, its rank 0, answers it; the
// address alone where it does not answer within `timeout`: whoever calls it next will say so.
std::vector<std::string> RankAddresses(const std::string& address, absl::Duration timeout);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RANK_ADDRESSES_H_
