// The name of a device's processor (processor.h), its free memory, and the GPUs that CUDA shows this
// process.
#ifndef TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_
#define TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/host/gpus.h"

namespace tandem::model {

// UNAVAILABLE if there is no such GPU, UNIMPLEMENTED for a GPU in a build without TANDEM_CUDA.
absl::StatusOr<std::string> ProcessorOf(at::Device device);

// Whether ATen multiplies bfloat16 matrices by groups in one launch there: on GPUs of compute capability 9
// and 10. Throws where the device cannot be queried.
bool HasGroupedProducts(at::Device device);

// Free bytes of a GPU's memory. Errors like ProcessorOf(); UNIMPLEMENTED also for a CPU.
absl::StatusOr<int64_t> FreeMemory(at::Device device);

// host::ReadGpuFacts(), with the GPUs as CUDA sees them: their compute capabilities, or why it
// cannot use them.
host::GpuFacts GpuFactsOfProcess();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DEVICE_PROCESSOR_H_
