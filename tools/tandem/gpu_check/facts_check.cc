// Driver, CUDA, GPUs, NCCL, and whether this program has code for the first GPU.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {

CheckResult CheckFacts(const Tools& tools, Machine& machine, absl::Time deadline) {
  const ChildOutput output = tools.RunDevice("facts", {"facts"}, deadline);
  if (!output.status.ok()) return Failed(std::string(output.status.message()));
  if (output.objects.empty()) return Failed("tandem-check-device printed no facts");
  CheckResult result;
  result.measured = output.objects.back();
  machine = MachineOf(result.measured);
  if (const absl::Status usable = RequireGpu(machine.facts); !usable.ok()) {
    result.Fail(std::string(usable.message()));
    return result;
  }
  const host::Gpu& gpu = machine.facts.gpus[0];
  result.summary = absl::StrFormat(
      "%s, compute capability %d.%d, %.0f GB, driver %s%s", gpu.name, gpu.major, gpu.minor,
      static_cast<double>(machine.memory_bytes) / 1e9, machine.facts.driver,
      machine.facts.gpus.size() > 1 ? absl::StrCat(", ", machine.facts.gpus.size(), " GPUs") : "");
  return result;
}

}  // namespace tandem::gpu_check
