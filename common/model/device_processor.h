// The name of a device's processor (processor.h).
#ifndef TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_
#define TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_

#include <c10/core/Device.h>

#include <string>

#include "absl/status/statusor.h"

namespace tandem::model {

// UNAVAILABLE if there is no such GPU, UNIMPLEMENTED for a GPU in a build without TANDEM_CUDA.
absl::StatusOr<std::string> ProcessorOf(at::Device device);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_
