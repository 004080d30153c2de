// CreateCudaForwardPass() for builds without CUDA: UNIMPLEMENTED.
#include "absl/strings/str_cat.h"
#include "services/rollout/runner/forward_pass.h"

namespace tandem::rollout {

absl::Status CheckCudaDevice(at::Device device) {
  return absl::UnimplementedError(absl::StrCat(
      "rollout.device: ", device.str(),
      ": this build supports CPUs only; configure it with -DTANDEM_CUDA=ON (tools/build cuda)"));
}

absl::StatusOr<std::unique_ptr<ForwardPass>> CreateCudaForwardPass(const model::Transformer& model,
                                                                   const model::PagedKvCache& cache,
                                                                   const ForwardOptions& options) {
  return CheckCudaDevice(cache.options().device);
}

}  // namespace tandem::rollout
