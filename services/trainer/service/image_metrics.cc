#include "services/trainer/service/image_metrics.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "common/status/status_macros.h"

namespace tandem::trainer {

absl::Status AddImageMetrics(const EncodedImages& encoded, comm::ProcessGroup& world,
                             c10::Device device, Metrics& metrics) {
  const std::vector<double> own = {static_cast<double>(encoded.num_images),
                                   static_cast<double>(encoded.num_patches), encoded.seconds};
  at::Tensor sums = at::tensor(own, at::kDouble).to(device);
  ASSIGN_OR_RETURN(auto work, world.AllReduce(sums, comm::ReduceOp::kSum, "encoded images"));
  RETURN_IF_ERROR(work->Wait());
  sums = sums.to(at::kCPU);
  const double* const sum = sums.const_data_ptr<double>();
  metrics["perf/encoded_images"] = sum[0];
  metrics["perf/encoded_image_patches"] = sum[1];
  metrics["timing_s/encode_images"] = sum[2] / world.size();
  return absl::OkStatus();
}

}  // namespace tandem::trainer
