// WithExactNumerics: exact numerics while it lives, which choose other kernels.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_WITH_EXACT_NUMERICS_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_WITH_EXACT_NUMERICS_H_

#include "common/model/numerics.h"

namespace tandem::gpu_check {

class WithExactNumerics {
 public:
  WithExactNumerics() : before_(model::CurrentNumerics()) {
    model::SetNumerics(model::Numerics::kExact);
  }
  ~WithExactNumerics() { model::SetNumerics(before_); }
  WithExactNumerics(const WithExactNumerics&) = delete;
  WithExactNumerics& operator=(const WithExactNumerics&) = delete;

 private:
  const model::Numerics before_;
};

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_WITH_EXACT_NUMERICS_H_
