// NcclOfCurrentDevice() for builds without CUDA.
#include "common/comm/nccl_api.h"

namespace tandem::comm {

absl::StatusOr<std::shared_ptr<NcclApi>> NcclOfCurrentDevice() {
  return absl::UnimplementedError("this build has no NCCL; configure with -DTANDEM_CUDA=ON");
}

}  // namespace tandem::comm
