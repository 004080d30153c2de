// NcclGroup: a ProcessGroup over NCCL. Internal to common/comm and its tests: CreateNcclGroup()
// chooses the table of the current device.
#ifndef TANDEM_COMMON_COMM_NCCL_GROUP_H_
#define TANDEM_COMMON_COMM_NCCL_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/nccl_api.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Like CreateNcclGroup(), over `api`; options.size > 1.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroupOver(const GroupOptions& options,
                                                                  std::shared_ptr<NcclApi> api);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_NCCL_GROUP_H_
