#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/trainer/fsdp/device_streams.h"

namespace tandem::trainer {
namespace {

class CudaMark : public DeviceStreams::Mark {
 public:
  explicit CudaMark(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  void Block(const c10::cuda::CUDAStream& stream) const { event_.block(stream); }

 private:
  mutable at::cuda::CUDAEvent event_;
};

class CudaMoment : public DeviceStreams::Moment {
 public:
  explicit CudaMoment(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  double SecondsUntil(const CudaMoment& end) const {
    end.event_.synchronize();
    return event_.elapsed_time(end.event_) / 1e3;
  }

 private:
  at::cuda::CUDAEvent event_{cudaEventDefault};  // with a time, unlike those that only order
};

class CudaStreams : public DeviceStreams {
 public:
  explicit CudaStreams(c10::Device device)
      : device_(device),
        // High priority: compute waits for collectives, whose kernels should not queue behind it.
        side_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {}

  std::shared_ptr<Mark> MarkCompute() override {
    return std::make_shared<CudaMark>(c10::cuda::getCurrentCUDAStream(device_.index()));
  }

  void IssueAfter(absl::Span<const Mark* const> after, absl::FunctionRef<void()> issue) override {
    for (const Mark* mark : after) {
      if (mark != nullptr) static_cast<const CudaMark*>(mark)->Block(side_);
    }
    const c10::cuda::CUDAStreamGuard guard(side_);
    issue();
  }

  std::unique_ptr<Moment> MarkTime() override {
    return std::make_unique<CudaMoment>(c10::cuda::getCurrentCUDAStream(device_.index()));
  }

  double SecondsBetween(const Moment& begin, const Moment& end) override {
    return static_cast<const CudaMoment&>(begin).SecondsUntil(static_cast<const CudaMoment&>(end));
  }

  int64_t peak_tensor_bytes() const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
        .peak;
  }

 private:
  const c10::Device device_;
  const c10::cuda::CUDAStream side_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStreams>> CreateCudaStreams(c10::Device device) {
  if (!device.is_cuda() || !device.has_index()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model's device: expected cpu or a CUDA device with an index, found ", device.str()));
  }
  try {
    return std::make_unique<CudaStreams>(device);
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat(device.str(), ": no stream could be made: ", e.what()));
  }
}

}  // namespace tandem::trainer
