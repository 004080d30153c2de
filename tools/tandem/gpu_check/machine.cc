#include "tools/tandem/gpu_check/machine.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::gpu_check {
namespace {

std::string Needed() {
  return absl::StrCat("needed: driver ", host::kOldestDriver, " or newer, for CUDA 13");
}

std::string FoundDriver(const host::GpuFacts& facts) {
  return absl::StrCat("driver found: ", facts.driver.empty() ? "none" : facts.driver);
}

}  // namespace

Machine MachineOf(const nlohmann::json& facts) {
  Machine machine;
  machine.facts.architectures = facts.value("built_for", "");
  machine.facts.driver = facts.value("driver", "");
  machine.facts.problem = facts.value("problem", "");
  for (const nlohmann::json& found : facts.value("gpus", nlohmann::json::array())) {
    host::Gpu& gpu = machine.facts.gpus.emplace_back();
    gpu.id = absl::StrCat(machine.facts.gpus.size() - 1);
    gpu.name = found.value("name", "");
    const std::pair<std::string, std::string> capability =
        absl::StrSplit(found.value("compute_capability", ""), '.');
    if (!absl::SimpleAtoi(capability.first, &gpu.major)) gpu.major = 0;
    if (!absl::SimpleAtoi(capability.second, &gpu.minor)) gpu.minor = 0;
    if (machine.facts.gpus.size() == 1) {
      machine.memory_bytes = found.value("memory_bytes", int64_t{0});
    }
  }
  return machine;
}

absl::Status RequireGpuBuild(const host::GpuFacts& facts) {
  if (!facts.architectures.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "this build supports CPUs only: build it for GPUs with tools/build cuda, or configure with "
      "-DTANDEM_CUDA=ON; ",
      FoundDriver(facts), "; ", Needed()));
}

absl::Status RequireGpu(const host::GpuFacts& facts) {
  if (const absl::Status build = RequireGpuBuild(facts); !build.ok()) return build;
  if (facts.gpus.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "no GPU can be used", facts.problem.empty() ? "" : ": ", facts.problem, "; ",
        FoundDriver(facts), "; ", Needed(),
        ", and a GPU in CUDA_VISIBLE_DEVICES; in a container, the runtime's option for GPUs"));
  }
  const host::Gpu& gpu = facts.gpus[0];
  if (host::RunsOn(facts.architectures, gpu.major, gpu.minor)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("cuda:0, ", gpu.name, ", has compute capability ", gpu.major, ".", gpu.minor,
                   ", and this program has code for ", facts.architectures,
                   "; build it with -DTANDEM_CUDA_ARCHITECTURES=", gpu.major, gpu.minor));
}

}  // namespace tandem::gpu_check
