// The name of what computes on a device (processor.h).
#ifndef TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_
#define TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_

#include <c10/core/Device.h>

#include <string>

#include "absl/status/statusor.h"

namespace tandem::model {

// UNAVAILABLE where there is no such GPU, UNIMPLEMENTED for one in a build without TANDEM_CUDA.
absl::StatusOr<std::string> ProcessorOf(at::Device device);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_
