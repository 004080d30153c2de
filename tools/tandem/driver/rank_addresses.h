// RankAddresses: the address at which each rank of a rollout replica receives weights.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RANK_ADDRESSES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RANK_ADDRESSES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::driver {

// Asks the replica at `address`, which is its rank 0, for HOST:PORT of every rank, rank 0 first.
// Returns `address` alone if it does not answer within `timeout`: its next caller gets the error.
std::vector<std::string> RankAddresses(const std::string& address, absl::Duration timeout);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RANK_ADDRESSES_H_
