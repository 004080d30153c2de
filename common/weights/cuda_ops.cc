// DeviceOps for a CUDA device: kernels (weight_kernels.h) on their own stream.
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"
#include "common/weights/device_ops.h"
#include "common/weights/weight_kernels.h"

namespace tandem::weights {
namespace {

class CudaDeviceOps : public DeviceOps {
 public:
  explicit CudaDeviceOps(std::shared_ptr<device::Device> device)
      : DeviceOps(std::move(device)), device_(DeviceOps::device()) {}

  absl::Status Copy(absl::Span<const CopyRun> runs) override {
    const c10::cuda::CUDAGuard guard(device_);
    return Explain("copy", LaunchCopy(runs.data(), runs.size(), Current()));
  }

  absl::Status Cast(WireElement element, absl::Span<const CastRun> runs) override {
    const c10::cuda::CUDAGuard guard(device_);
    return Explain("cast", LaunchCast(element, runs.data(), runs.size(), Current()));
  }

  absl::Status Digest(absl::Span<const DigestRun> runs, absl::Span<DigestSum> sums) override {
    const c10::cuda::CUDAGuard guard(device_);
    const auto lanes = 2 * static_cast<int64_t>(sums.size());
    return Try("digest", [&]() -> absl::Status {
      const at::Tensor found = at::zeros({lanes}, at::TensorOptions(at::kLong).device(device_));
      RETURN_IF_ERROR(
          Explain("digest",
                  LaunchDigest(runs.data(), runs.size(),
                               reinterpret_cast<uint64_t*>(found.data_ptr<int64_t>()), Current())));
      const at::Tensor host = found.cpu();  // waits
      const auto* const sum = host.const_data_ptr<int64_t>();
      for (size_t slot = 0; slot < sums.size(); ++slot) {
        for (size_t lane = 0; lane < 2; ++lane) {
          sums[slot].lanes[lane] += static_cast<uint64_t>(sum[2 * slot + lane]);
        }
      }
      return absl::OkStatus();
    });
  }

 private:
  cudaStream_t Current() const { return c10::cuda::getCurrentCUDAStream(device_.index()).stream(); }

  absl::Status Explain(absl::string_view what, cudaError_t error) const {
    if (error == cudaSuccess) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("weights on ", device_.str(), ", ", what, ": ", cudaGetErrorString(error)));
  }

  template <typename Body>
  absl::Status Try(absl::string_view what, Body body) const {
    try {
      return body();
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("weights on ", device_.str(), ", ", what, ": ",
                                              comm::FirstLine(error.what())));
    }
  }

  const at::Device device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceOps>> CreateCudaOps(at::Device device) {
  if (!device.is_cuda() || !device.has_index()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected weights on cpu or on a CUDA device with an index, found ", device.str()));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<device::Device> found, device::Device::Create(device));
  try {
    return std::make_unique<CudaDeviceOps>(std::move(found));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("weights on ", device.str(), ": ", comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::weights
