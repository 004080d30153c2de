// NcclApi over NCCL and CUDA; built with TANDEM_CUDA.
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/comm/nccl_api.h"
#include "common/comm/run_with_deadline.h"
#include "common/device/accelerator_device.h"

namespace tandem::comm {
namespace {

static_assert(NcclApi::kSuccess == ncclSuccess && NcclApi::kInProgress == ncclInProgress);

ncclComm_t Handle(NcclCommunicator* comm) { return reinterpret_cast<ncclComm_t>(comm); }
cudaStream_t Handle(const device::Stream& stream) {
  return c10::cuda::CUDAStream(device::AcceleratorDevice::StreamOf(stream)).stream();
}

ncclRedOp_t OpOf(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin;
}

bool FindType(at::ScalarType type, ncclDataType_t& found) {
  switch (type) {
    case at::kFloat:
      found = ncclFloat32;
      return true;
    case at::kBFloat16:
      found = ncclBfloat16;
      return true;
    case at::kHalf:
      found = ncclFloat16;
      return true;
    case at::kDouble:
      found = ncclFloat64;
      return true;
    case at::kInt:
      found = ncclInt32;
      return true;
    case at::kLong:
      found = ncclInt64;
      return true;
    case at::kByte:
      found = ncclUint8;
      return true;
    case at::kChar:
      found = ncclInt8;
      return true;
    default:
      return false;
  }
}

class NcclLibrary : public NcclApi {
 public:
  explicit NcclLibrary(c10::DeviceIndex index) : device_({c10::kCUDA, index}) {}

  int GetUniqueId(std::string& id) override {
    ncclUniqueId unique;
    const ncclResult_t result = ncclGetUniqueId(&unique);
    id.assign(unique.internal, sizeof(unique.internal));
    return result;
  }

  int CommInitRank(NcclCommunicator** comm, int size, const std::string& id, int rank) override {
    ncclUniqueId unique;
    if (id.size() != sizeof(unique.internal)) return ncclInvalidArgument;
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&made, size, unique, rank, &config);
    *comm = reinterpret_cast<NcclCommunicator*>(made);
    return result;
  }

  int CommGetAsyncError(NcclCommunicator* comm, int* error) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(Handle(comm), &state);
    *error = state;
    return result;
  }

  int CommFinalize(NcclCommunicator* comm) override { return ncclCommFinalize(Handle(comm)); }
  int CommDestroy(NcclCommunicator* comm) override { return ncclCommDestroy(Handle(comm)); }
  int CommAbort(NcclCommunicator* comm) override { return ncclCommAbort(Handle(comm)); }
  bool IsCapturing() override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.device().index()).stream();
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusActive;
  }
  int GroupStart() override { return ncclGroupStart(); }
  int GroupEnd() override { return ncclGroupEnd(); }

  std::string ErrorText(int result, NcclCommunicator* comm) override {
    const char* const detail = ncclGetLastError(Handle(comm));
    return absl::StrCat("NCCL: ", ncclGetErrorString(static_cast<ncclResult_t>(result)),
                        detail == nullptr || *detail == '\0' ? "" : ": ",
                        detail == nullptr ? "" : FirstLine(detail));
  }

  int AllGather(const void* shard, void* full, size_t shard_bytes, NcclCommunicator* comm,
                const device::Stream& stream) override {
    return ncclAllGather(shard, full, shard_bytes, ncclUint8, Handle(comm), Handle(stream));
  }
  int ReduceScatter(const void* full, void* shard, size_t shard_count, at::ScalarType type,
                    NcclCommunicator* comm, const device::Stream& stream) override {
    ncclDataType_t found;
    if (!FindType(type, found)) return ncclInvalidArgument;
    return ncclReduceScatter(full, shard, shard_count, found, ncclSum, Handle(comm),
                             Handle(stream));
  }
  int AllReduce(void* data, size_t count, at::ScalarType type, ReduceOp op, NcclCommunicator* comm,
                const device::Stream& stream) override {
    ncclDataType_t found;
    if (!FindType(type, found)) return ncclInvalidArgument;
    return ncclAllReduce(data, data, count, found, OpOf(op), Handle(comm), Handle(stream));
  }
  int Broadcast(void* data, size_t bytes, int root, NcclCommunicator* comm,
                const device::Stream& stream) override {
    return ncclBroadcast(data, data, bytes, ncclUint8, root, Handle(comm), Handle(stream));
  }
  int Send(const void* data, size_t bytes, int to, NcclCommunicator* comm,
           const device::Stream& stream) override {
    return ncclSend(data, bytes, ncclUint8, to, Handle(comm), Handle(stream));
  }
  int Receive(void* data, size_t bytes, int from, NcclCommunicator* comm,
              const device::Stream& stream) override {
    return ncclRecv(data, bytes, ncclUint8, from, Handle(comm), Handle(stream));
  }

  device::Device& device() override { return device_; }

 private:
  device::AcceleratorDevice device_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<NcclApi>> NcclOfCurrentDevice() {
  try {
    return std::make_shared<NcclLibrary>(c10::cuda::current_device());
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", FirstLine(error.what())));
  }
}

}  // namespace tandem::comm
