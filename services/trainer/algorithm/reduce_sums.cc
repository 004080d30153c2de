#include "services/trainer/algorithm/reduce_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "common/status/status_macros.h"

namespace tandem::trainer {

absl::Status ReduceSums(absl::Span<double> sums, const comm::DeviceMesh& mesh, at::Device device,
                        absl::string_view what) {
  at::Tensor reduced = at::zeros({static_cast<int64_t>(sums.size())}, at::kDouble);
  if (mesh.leads_data_rank()) {
    std::copy(sums.begin(), sums.end(), reduced.mutable_data_ptr<double>());
  }
  reduced = reduced.to(device);
  ASSIGN_OR_RETURN(auto work,
                   mesh.world().AllReduce(reduced, comm::ReduceOp::kSum, std::string(what)));
  RETURN_IF_ERROR(work->Wait());
  reduced = reduced.to(at::kCPU);
  std::copy_n(reduced.const_data_ptr<double>(), sums.size(), sums.begin());
  return absl::OkStatus();
}

}  // namespace tandem::trainer
