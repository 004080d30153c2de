// Implements device_processor.h for builds without CUDA.
#include "absl/strings/str_cat.h"
#include "common/model/device_processor.h"
#include "common/model/kernels/instruction_sets.h"

namespace tandem::model {

absl::StatusOr<std::string> ProcessorOf(at::Device device) {
  if (device.is_cpu()) return kernels::InstructionSets();
  return absl::UnimplementedError(absl::StrCat(
      device.str(), ": this build supports CPUs only; configure it with -DTANDEM_CUDA=ON"));
}

bool HasGroupedProducts(at::Device device) { return false; }

absl::StatusOr<int64_t> FreeMemory(at::Device device) {
  return absl::UnimplementedError(absl::StrCat("no free memory is known of ", device.str()));
}

host::GpuFacts GpuFactsOfProcess() { return host::ReadGpuFacts(); }

}  // namespace tandem::model
