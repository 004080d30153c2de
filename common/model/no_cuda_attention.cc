// Implements CreateCudaAttention() for builds without CUDA.
#include "absl/strings/str_cat.h"
#include "common/model/device_attention.h"

namespace tandem::model {

absl::StatusOr<std::unique_ptr<DeviceAttention>> CreateCudaAttention(const PagedKvCache& cache,
                                                                     int64_t num_heads) {
  return absl::UnimplementedError(
      absl::StrCat("attention on ", cache.options().device.str(),
                   ": this build supports CPUs only; configure it with -DTANDEM_CUDA=ON"));
}

}  // namespace tandem::model
