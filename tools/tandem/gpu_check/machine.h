// What the checks know of the machine: facts, which the first check reads, and rates, which a later
// one measures and the last ones are held against.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_MACHINE_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/host/gpus.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/roofline.h"

namespace tandem::gpu_check {

struct Machine {
  host::GpuFacts facts;
  int64_t memory_bytes = 0;   // of the first GPU
  bench::MachineRates rates;  // of the first GPU; 0 where not measured
};

// What tandem-check-device says of the machine:
//   {"driver", "cuda_driver", "cuda_runtime", "nccl", "torch", "built_for", "problem",
//    "gpus": [{"name", "uuid", "compute_capability": "9.0", "memory_bytes", "runs_here"}]}
// Absent keys leave what is unknown.
Machine MachineOf(const nlohmann::json& facts);

// OK if this build supports GPUs. UNIMPLEMENTED otherwise, with the driver found and the one needed.
absl::Status RequireGpuBuild(const host::GpuFacts& facts);

// OK if the first GPU can be used. UNIMPLEMENTED for a build without GPUs or without code for this
// one, UNAVAILABLE without a driver or a GPU; with what was found, what is needed and what to do.
absl::Status RequireGpu(const host::GpuFacts& facts);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_MACHINE_H_
