// What CUDA, its driver and NCCL say of this machine.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_DEVICE_FACTS_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_DEVICE_FACTS_H_

#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

// The object of MachineOf() (machine.h). Defined in cuda_facts.cc with TANDEM_CUDA; no_cuda_facts.cc
// knows what the build is and which driver is loaded.
nlohmann::json DeviceFacts();

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_DEVICE_FACTS_H_
