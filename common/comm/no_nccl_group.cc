// CreateNcclGroup() for builds without CUDA.
#include "common/comm/process_group.h"

namespace tandem::comm {

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(const GroupOptions& options) {
  return absl::UnimplementedError("group " + options.name +
                                  ": this build has no NCCL; configure with -DTANDEM_CUDA=ON");
}

}  // namespace tandem::comm
