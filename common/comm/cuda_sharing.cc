// DeviceSharing over CUDA IPC. A handle holds the allocation's handle (the caching allocator's,
// which shares whole segments), the offset in it, and an event recorded after the work that fills
// it.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <deque>
#include <exception>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/device_sharing.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kPollPause = absl::Microseconds(20);
// Peers' segments stay mapped: opening one takes longer than copying a bucket.
constexpr size_t kMaxMapped = 16;

absl::Status Explain(absl::string_view what, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA IPC, ", what, ": ", cudaGetErrorString(error)));
}

// Destroys its event.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  cudaEvent_t get() const { return event_; }
  cudaEvent_t* out() { return &event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Header sent before the allocator's own handle.
struct Header {
  int64_t offset_bytes;
  int64_t size_bytes;
  cudaIpcEventHandle_t filled;
};

class CudaSharing : public DeviceSharing {
 public:
  CudaSharing(c10::DeviceIndex device, std::string place)
      : device_(device), place_(std::move(place)) {}

  std::string Place() const override { return place_; }

  absl::StatusOr<SharedBytes> Offer(const at::Tensor& tensor) override {
    const c10::cuda::CUDAGuard guard(device_);
    struct Holder {
      at::Tensor tensor;
      Event filled;
    };
    auto holder = std::make_shared<Holder>();
    holder->tensor = tensor;
    RETURN_IF_ERROR(
        Explain("event", cudaEventCreateWithFlags(holder->filled.out(),
                                                  cudaEventDisableTiming | cudaEventInterprocess)));
    // The peer's stream waits for this event, so neither host waits for the work that fills the
    // bytes.
    RETURN_IF_ERROR(Explain("record", cudaEventRecord(holder->filled.get(), Stream())));
    Header header{};
    header.size_bytes = static_cast<int64_t>(tensor.nbytes());
    RETURN_IF_ERROR(
        Explain("event handle", cudaIpcGetEventHandle(&header.filled, holder->filled.get())));
    std::string segment;
    try {
      // The allocator knows its blocks by their first byte; the tensor may be a part of one.
      auto* const block = static_cast<std::byte*>(tensor.storage().mutable_data());
      auto shared = c10::cuda::CUDACachingAllocator::shareIpcHandle(block);
      header.offset_bytes = shared.offset + (static_cast<std::byte*>(tensor.data_ptr()) - block);
      segment = std::move(shared.handle);
    } catch (const std::exception& error) {
      return absl::InternalError(
          absl::StrCat("CUDA IPC, memory handle: ", FirstLine(error.what())));
    }
    SharedBytes out;
    out.handle.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    out.handle += segment;
    if (out.handle.size() > kMaxHandleBytes) {
      return absl::InternalError(absl::StrCat(
          "CUDA IPC, memory handle: ", out.handle.size(), " bytes, expected at most ",
          kMaxHandleBytes, "; turn off expandable_segments in PYTORCH_CUDA_ALLOC_CONF"));
    }
    out.holder = std::move(holder);
    return out;
  }

  absl::Status Take(const std::string& handle, const at::Tensor& to, absl::Time deadline) override {
    const c10::cuda::CUDAGuard guard(device_);
    Header header;
    if (handle.size() <= sizeof(header)) return absl::DataLossError("CUDA IPC: no handle");
    std::memcpy(&header, handle.data(), sizeof(header));
    const auto wanted = static_cast<int64_t>(to.nbytes());
    if (header.size_bytes != wanted) {
      return absl::InternalError(
          absl::StrCat("CUDA IPC: ", header.size_bytes, " bytes offered, expected ", wanted));
    }
    ASSIGN_OR_RETURN(const void* segment, Map(handle.substr(sizeof(header))));
    Event filled, taken;
    RETURN_IF_ERROR(Explain("open event", cudaIpcOpenEventHandle(filled.out(), header.filled)));
    RETURN_IF_ERROR(
        Explain("event", cudaEventCreateWithFlags(taken.out(), cudaEventDisableTiming)));
    RETURN_IF_ERROR(Explain("wait", cudaStreamWaitEvent(Stream(), filled.get(), 0)));
    RETURN_IF_ERROR(Explain(
        "copy",
        cudaMemcpyAsync(to.data_ptr(), static_cast<const std::byte*>(segment) + header.offset_bytes,
                        static_cast<size_t>(wanted), cudaMemcpyDeviceToDevice, Stream())));
    RETURN_IF_ERROR(Explain("record", cudaEventRecord(taken.get(), Stream())));
    while (true) {
      // cudaEventSynchronize() has no time-out. The owner reuses its bytes after our answer, so the
      // copy must be over, not just queued.
      const cudaError_t state = cudaEventQuery(taken.get());
      if (state != cudaErrorNotReady) return Explain("copy", state);
      if (absl::Now() >= deadline) {
        return absl::DeadlineExceededError("CUDA IPC: the copy missed its deadline");
      }
      absl::SleepFor(kPollPause);
    }
  }

 private:
  struct Segment {
    std::string handle;
    std::shared_ptr<void> base;
  };

  cudaStream_t Stream() const { return c10::cuda::getCurrentCUDAStream(device_).stream(); }

  absl::StatusOr<const void*> Map(std::string handle) {
    for (const Segment& segment : mapped_) {
      if (segment.handle == handle) return segment.base.get();
    }
    try {
      Segment segment{handle, c10::cuda::CUDACachingAllocator::getIpcDevPtr(handle)};
      if (mapped_.size() == kMaxMapped) mapped_.pop_front();
      mapped_.push_back(std::move(segment));
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("CUDA IPC, open memory: ", FirstLine(error.what())));
    }
    return mapped_.back().base.get();
  }

  const c10::DeviceIndex device_;
  const std::string place_;
  std::deque<Segment> mapped_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSharing>> CreateCudaSharing() {
  try {
    const c10::DeviceIndex device = c10::cuda::current_device();
    cudaDeviceProp properties;
    RETURN_IF_ERROR(Explain("device", cudaGetDeviceProperties(&properties, device)));
    const std::string uuid(properties.uuid.bytes, sizeof(properties.uuid.bytes));
    return std::make_unique<CudaSharing>(device,
                                         absl::StrCat("gpu ", absl::BytesToHexString(uuid)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("CUDA IPC: no CUDA device: ", FirstLine(error.what())));
  }
}

}  // namespace tandem::comm
