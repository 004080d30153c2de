// One of two ranks of a group, which lose each other.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_LOST_RANK_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_LOST_RANK_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

struct LostRankWork {
  at::Device device = at::kCPU;
  std::string backend;                         // as in comm::CreateGroupOf()
  int rank = 0;                                // 0 serves the rendezvous
  int port = 0;                                // of the rendezvous
  absl::Duration timeout = absl::Seconds(10);  // of an operation
};

// Joins the group and sums tensors of 4 MiB with the other rank. Rank 1 kills its process (SIGKILL)
// behind the third sum. Rank 0 returns {"sums", "seconds_to_notice", "error"} once a sum fails,
// counted from its beginning. Errors: DATA_LOSS for a wrong sum, INTERNAL if none failed.
absl::StatusOr<nlohmann::json> LoseOtherRank(const LostRankWork& work);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_DEVICE_LOST_RANK_H_
