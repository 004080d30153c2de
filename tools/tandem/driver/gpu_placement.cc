#include "tools/tandem/driver/gpu_placement.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

// Whether processes with this setting take whichever GPU they see.
bool TakesAnyGpu(const std::string& device) {
  return device.empty() || device == "auto" || device == "cuda";
}

absl::Status CheckEnough(const std::string& what, int64_t ranks, size_t num_gpus,
                         const std::string& key) {
  if (ranks <= static_cast<int64_t>(num_gpus)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      what, " has ", ranks, " ranks, but ", num_gpus,
      " GPUs are visible, and two ranks cannot share one; lower the number of ranks, or set ", key,
      "=cpu"));
}

}  // namespace

absl::StatusOr<GpuPlacement> PlaceOnGpus(const GpuRequest& request, const host::GpuFacts& facts) {
  GpuPlacement placement;
  const std::vector<host::Gpu>& gpus = facts.gpus;
  if (facts.architectures.empty() || gpus.empty()) return placement;
  const int64_t trainer = TakesAnyGpu(request.trainer_device) ? request.trainer_ranks : 0;
  RETURN_IF_ERROR(CheckEnough("the trainer", trainer, gpus.size(), "trainer.device"));
  for (int64_t rank = 0; rank < trainer; ++rank) placement.trainer.push_back(gpus[rank].id);
  if (!TakesAnyGpu(request.rollout_device)) return placement;
  const int64_t rollouts =
      std::accumulate(request.replica_ranks.begin(), request.replica_ranks.end(), int64_t{0});
  const bool all_fit = trainer + rollouts <= static_cast<int64_t>(gpus.size());
  size_t next = all_fit ? trainer : 0;
  for (const int64_t ranks : request.replica_ranks) {
    RETURN_IF_ERROR(CheckEnough("a rollout", ranks, gpus.size(), "rollout.device"));
    std::vector<std::string>& replica = placement.replicas.emplace_back();
    for (int64_t rank = 0; rank < ranks; ++rank) replica.push_back(gpus[next++ % gpus.size()].id);
  }
  return placement;
}

std::vector<std::pair<std::string, std::string>> GpuEnvironment(const std::string& gpu) {
  if (gpu.empty()) return {};
  // Ids are numbered as the driver's folders are.
  return {{"CUDA_VISIBLE_DEVICES", gpu}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}};
}

}  // namespace tandem::driver
