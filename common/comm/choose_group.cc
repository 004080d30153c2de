// CreateProcessGroup: which of the groups fits where the ranks and their tensors are.
#include "common/comm/process_group.h"

namespace tandem::comm {

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateProcessGroup(const GroupOptions& options,
                                                                 at::Device device,
                                                                 bool /*allow_shared_memory*/) {
  return device.is_cuda() ? CreateNcclGroup(options) : CreateGlooGroup(options);
}

}  // namespace tandem::comm
