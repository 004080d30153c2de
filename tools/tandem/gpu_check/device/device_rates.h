// How fast a device copies in its memory and multiplies matrices.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_DEVICE_RATES_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_DEVICE_RATES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

struct RateWork {
  int64_t copy_bytes = int64_t{2} << 30;
  int64_t product_size = 8192;
  int repeats = 20;
};

// Returns {"copy_bytes", "copy_seconds", "product_size", "product_seconds"}: seconds of one copy of
// bytes from tensor to tensor, and of one product of two square bfloat16 matrices, each the least
// of five series of `repeats` without a pause. RESOURCE_EXHAUSTED if the memory does not suffice.
absl::StatusOr<nlohmann::json> MeasureDeviceRates(at::Device device, const RateWork& work);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_DEVICE_RATES_H_
