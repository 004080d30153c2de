// CudaProcessor of a build without CUDA.
#include "absl/strings/str_cat.h"
#include "common/model/processor.h"

namespace tandem::model {

absl::StatusOr<std::string> CudaProcessor(at::Device device) {
  return absl::UnimplementedError(
      absl::StrCat(device.str(),
                   ": this build computes on CPUs only; configure it with "
                   "-DTANDEM_CUDA=ON"));
}

}  // namespace tandem::model
