#include "common/model/device_processor.h"
#include "tools/tandem/gpu_check/device/device_facts.h"

namespace tandem::gpu_check {

nlohmann::json DeviceFacts() {
  const host::GpuFacts facts = model::GpuFactsOfProcess();
  return {{"built_for", facts.architectures},
          {"driver", facts.driver},
          {"problem", facts.problem},
          {"gpus", nlohmann::json::array()}};
}

}  // namespace tandem::gpu_check
