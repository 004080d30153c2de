// A group of one rank: collectives are copies, and there is no rendezvous.
#ifndef TANDEM_COMMON_COMM_SINGLE_RANK_GROUP_H_
#define TANDEM_COMMON_COMM_SINGLE_RANK_GROUP_H_

#include <memory>

#include "common/comm/process_group.h"

namespace tandem::comm {

std::unique_ptr<ProcessGroup> CreateSingleRankGroup(const GroupOptions& options);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SINGLE_RANK_GROUP_H_
