#include "services/trainer/service/same_kernels.h"

#include <ATen/ops/tensor.h>
#include <xxhash.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/comm/wait_on_host.h"
#include "common/model/processor.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

// A number that float32 holds exactly.
float NumberOf(const std::string& text) {
  return static_cast<float>(XXH32(text.data(), text.size(), /*seed=*/0) & 0xFFFFFFu);
}

}  // namespace

absl::Status CheckSameKernels(comm::ProcessGroup& world, at::Device device) {
  if (world.size() == 1) return absl::OkStatus();
  const std::string own = model::CurrentProcessor();
  const float number = NumberOf(own);
  // The largest, and the smallest.
  at::Tensor extremes = at::tensor(std::vector<float>{number, -number}).to(device);
  ASSIGN_OR_RETURN(const auto work, world.AllReduce(extremes, comm::ReduceOp::kMax, "processors"));
  RETURN_IF_ERROR(comm::WaitOnHost(world, *work));
  if (extremes[0].item<float>() == -extremes[1].item<float>()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "numerics: exact needs the same kind of processor on all ranks; rank ", world.rank(), " has ",
      own, ", another rank a different one; start all ranks on one kind, or set numerics to fast"));
}

}  // namespace tandem::trainer
