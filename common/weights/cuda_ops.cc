// DeviceOps for a CUDA device: kernels (weight_kernels.h) on their own stream.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <optional>
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

// Runs the thread's work on `stream`: after what it queued before, and before what it queues later.
class StreamTurn {
 public:
  explicit StreamTurn(const c10::cuda::CUDAStream& stream)
      : before_(c10::cuda::getCurrentCUDAStream(stream.device_index())), stream_(stream) {
    at::cuda::CUDAEvent behind;
    behind.record(before_);
    behind.block(stream_);
    guard_.emplace(stream_);
  }
  ~StreamTurn() {
    guard_.reset();
    try {
      at::cuda::CUDAEvent ahead;
      ahead.record(stream_);
      ahead.block(before_);
    } catch (const std::exception&) {
      // The device is lost; whatever is queued next says so.
    }
  }
  StreamTurn(const StreamTurn&) = delete;
  StreamTurn& operator=(const StreamTurn&) = delete;

 private:
  const c10::cuda::CUDAStream before_;
  const c10::cuda::CUDAStream stream_;
  std::optional<c10::cuda::CUDAStreamGuard> guard_;
};

class CudaDeviceOps : public DeviceOps {
 public:
  explicit CudaDeviceOps(at::Device device)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  at::Device device() const override { return device_; }
  bool on_host() const override { return false; }
  std::shared_ptr<void> Enter() override { return std::make_shared<StreamTurn>(stream_); }

  absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) override {
    return Allocate(size_bytes, at::TensorOptions(at::kByte).device(device_));
  }
  absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) override {
    return Allocate(size_bytes, at::TensorOptions(at::kByte).pinned_memory(true));
  }

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

  absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) override {
    return Try("transfer", [&] {
      at::NoGradGuard no_grad;
      to.copy_(from, /*non_blocking=*/true);
      return Synchronize();
    });
  }

  absl::Status Synchronize() override {
    const c10::cuda::CUDAGuard guard(device_);
    return Explain("synchronize", cudaStreamSynchronize(Current()));
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

  absl::StatusOr<at::Tensor> Allocate(int64_t size_bytes, const at::TensorOptions& options) const {
    try {
      return at::empty({size_bytes}, options);
    } catch (const std::exception& error) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot allocate a buffer of ", size_bytes,
                                                       " bytes for ", device_.str(), ": ",
                                                       comm::FirstLine(error.what())));
    }
  }

  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceOps>> CreateCudaOps(at::Device device) {
  if (!device.is_cuda() || !device.has_index()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected weights on cpu or on a CUDA device with an index, found ", device.str()));
  }
  try {
    return std::make_unique<CudaDeviceOps>(device);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("weights on ", device.str(), ": ", comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::weights
