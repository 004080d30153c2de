#include "services/trainer/service/step_times.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {

absl::Status AddStepTimes(PhaseSeconds phases, double step_seconds, comm::ProcessGroup& world,
                          c10::Device device, Metrics& metrics) {
  double rest = step_seconds;
  for (const auto& [phase, seconds] : phases) rest -= seconds;
  phases["other"] = std::max(0.0, rest);
  phases["step"] = step_seconds;
  for (const auto& [phase, seconds] : phases) {
    metrics[absl::StrCat("timing_s/fsdp/", phase)] = seconds;
  }
  if (world.size() > kRanksWithTimes) return absl::OkStatus();

  // Every rank fills in its row; the sum has them all.
  at::Tensor table = at::zeros({world.size(), static_cast<int64_t>(phases.size())}, at::kDouble);
  int64_t column = 0;
  for (const auto& [phase, seconds] : phases) {
    table.mutable_data_ptr<double>()[world.rank() * table.size(1) + column++] = seconds;
  }
  table = table.to(device);
  ASSIGN_OR_RETURN(auto work, world.AllReduce(table, comm::ReduceOp::kSum, "step times"));
  RETURN_IF_ERROR(work->Wait());
  table = table.to(at::kCPU);
  const double* value = table.const_data_ptr<double>();
  for (int rank = 0; rank < world.size(); ++rank) {
    for (const auto& [phase, seconds] : phases) {
      metrics[absl::StrCat("timing_s/rank.", rank, "/", phase)] = *value++;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
