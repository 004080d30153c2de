// DeviceSharing over CUDA IPC. A handle holds that of the whole allocation, the offset in it, and an
// event recorded after the work that fills it. The allocation is asked of the driver: the caching
// allocator knows only the first byte of its blocks, and tensors may begin within one.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
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
// Peers' allocations stay mapped: opening one takes longer than copying a bucket.
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

// What is sent.
struct Handle {
  int64_t offset_bytes;
  int64_t size_bytes;
  cudaIpcEventHandle_t filled;
  cudaIpcMemHandle_t allocation;
};
static_assert(sizeof(Handle) <= kMaxHandleBytes);

// Returns the first byte of the allocation that `data` lies in. The program is not linked against the
// driver, which a machine without a GPU does not have.
absl::StatusOr<std::byte*> AllocationOf(std::byte* data) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  RETURN_IF_ERROR(
      Explain("driver", cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry,
                                                         CUDA_VERSION, cudaEnableDefault, &found)));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
    return absl::InternalError("CUDA IPC: the driver has no cuMemGetAddressRange");
  }
  CUdeviceptr base = 0;
  const CUresult result = reinterpret_cast<decltype(&cuMemGetAddressRange)>(entry)(
      &base, nullptr, reinterpret_cast<CUdeviceptr>(data));
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrCat(
        "CUDA IPC: the bytes lie in no allocation of this GPU, driver error ", int{result}));
  }
  return reinterpret_cast<std::byte*>(base);
}

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
    auto* const data = static_cast<std::byte*>(tensor.data_ptr());
    Handle handle{};
    handle.size_bytes = static_cast<int64_t>(tensor.nbytes());
    RETURN_IF_ERROR(
        Explain("event handle", cudaIpcGetEventHandle(&handle.filled, holder->filled.get())));
    ASSIGN_OR_RETURN(std::byte* const allocation, AllocationOf(data));
    handle.offset_bytes = data - allocation;
    RETURN_IF_ERROR(
        Explain("memory handle (not with expandable_segments in PYTORCH_CUDA_ALLOC_CONF)",
                cudaIpcGetMemHandle(&handle.allocation, allocation)));
    SharedBytes out;
    out.handle.assign(reinterpret_cast<const char*>(&handle), sizeof(handle));
    out.holder = std::move(holder);
    return out;
  }

  absl::Status Take(const std::string& text, const at::Tensor& to, absl::Time deadline) override {
    const c10::cuda::CUDAGuard guard(device_);
    Handle handle;
    if (text.size() != sizeof(handle)) {
      return absl::DataLossError(
          absl::StrCat("CUDA IPC: a handle of ", text.size(), " bytes, expected ", sizeof(handle)));
    }
    std::memcpy(&handle, text.data(), sizeof(handle));
    const auto wanted = static_cast<int64_t>(to.nbytes());
    if (handle.size_bytes != wanted) {
      return absl::InternalError(
          absl::StrCat("CUDA IPC: ", handle.size_bytes, " bytes offered, expected ", wanted));
    }
    ASSIGN_OR_RETURN(const std::byte* const allocation, Map(handle.allocation));
    Event filled, taken;
    RETURN_IF_ERROR(Explain("open event", cudaIpcOpenEventHandle(filled.out(), handle.filled)));
    RETURN_IF_ERROR(
        Explain("event", cudaEventCreateWithFlags(taken.out(), cudaEventDisableTiming)));
    RETURN_IF_ERROR(Explain("wait", cudaStreamWaitEvent(Stream(), filled.get(), 0)));
    RETURN_IF_ERROR(Explain(
        "copy", cudaMemcpyAsync(to.data_ptr(), allocation + handle.offset_bytes,
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
  // Unmaps a peer's allocation.
  struct Unmap {
    void operator()(std::byte* allocation) const { cudaIpcCloseMemHandle(allocation); }
  };
  struct Mapping {
    cudaIpcMemHandle_t handle;
    std::unique_ptr<std::byte, Unmap> allocation;
  };

  cudaStream_t Stream() const { return c10::cuda::getCurrentCUDAStream(device_).stream(); }

  absl::StatusOr<const std::byte*> Map(const cudaIpcMemHandle_t& handle) {
    for (const Mapping& mapping : mapped_) {
      if (std::memcmp(&mapping.handle, &handle, sizeof(handle)) == 0) {
        return mapping.allocation.get();
      }
    }
    void* allocation = nullptr;
    RETURN_IF_ERROR(Explain(
        "open memory", cudaIpcOpenMemHandle(&allocation, handle, cudaIpcMemLazyEnablePeerAccess)));
    if (mapped_.size() == kMaxMapped) mapped_.pop_front();
    mapped_.push_back(
        {handle, std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(allocation))});
    return mapped_.back().allocation.get();
  }

  const c10::DeviceIndex device_;
  const std::string place_;
  std::deque<Mapping> mapped_;
};

}  // namespace

absl::StatusOr<std::string> IdOfGpu(c10::Device device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device.index());
  if (error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat(device.str(), ": no such GPU: ", cudaGetErrorString(error)));
  }
  const std::string uuid(properties.uuid.bytes, sizeof(properties.uuid.bytes));
  return absl::StrCat("gpu ", absl::BytesToHexString(uuid));
}

absl::StatusOr<std::unique_ptr<DeviceSharing>> CreateCudaSharing() {
  try {
    const c10::DeviceIndex device = c10::cuda::current_device();
    ASSIGN_OR_RETURN(std::string place, IdOfGpu(c10::Device(c10::kCUDA, device)));
    return std::make_unique<CudaSharing>(device, std::move(place));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("CUDA IPC: no CUDA device: ", FirstLine(error.what())));
  }
}

}  // namespace tandem::comm
