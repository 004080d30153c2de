// Which GPU each process of a LocalCluster gets.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GPU_PLACEMENT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GPU_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/host/gpus.h"

namespace tandem::driver {

struct GpuPlacement {
  // GPU ids by rank, and by replica and rank; empty for processes that are not placed.
  std::vector<std::string> trainer;
  std::vector<std::vector<std::string>> replicas;
};

struct GpuRequest {
  std::string trainer_device = "auto";  // trainer.device and rollout.device
  std::string rollout_device = "auto";
  int64_t trainer_ranks = 0;           // 0: no trainer here
  std::vector<int64_t> replica_ranks;  // empty: no rollouts here
};

// Gives every process a GPU of its own while there are enough: the trainer's ranks first, then the
// replicas. With fewer GPUs, trainer rank i and rollout rank i share GPU i, and more rollout ranks
// begin at GPU 0 again. Roles on the CPU or on a stated GPU (cuda:N), and all of them on a machine
// or in a build without GPUs, are not placed. UNAVAILABLE if the trainer, or one replica, has more
// ranks than there are GPUs: ranks of one NCCL group cannot share one.
absl::StatusOr<GpuPlacement> PlaceOnGpus(const GpuRequest& request, const host::GpuFacts& facts);

// The environment in which a process sees only `gpu`; empty if `gpu` is.
std::vector<std::pair<std::string, std::string>> GpuEnvironment(const std::string& gpu);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GPU_PLACEMENT_H_
