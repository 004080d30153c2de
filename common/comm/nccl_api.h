// NcclApi: the functions of NCCL that a group calls, behind one table, so that what surrounds them
// (deadlines, aborts, the rendezvous) compiles and is tested without a GPU. The real table is
// nccl_library.cc; tests/fakes/fake_nccl.h has one whose peers die on request, tests/simulator one
// that moves the simulated device's bytes. Streams and events are those of common/device.
#ifndef TANDEM_COMMON_COMM_NCCL_API_H_
#define TANDEM_COMMON_COMM_NCCL_API_H_

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/device/device.h"

namespace tandem::comm {

struct NcclCommunicator;  // opaque: NCCL's ncclComm

// A table belongs to one device. Functions return an ncclResult_t. Any thread, but one call per communicator at a time, CommAbort() excepted.
class NcclApi {
 public:
  static constexpr int kSuccess = 0;
  static constexpr int kInProgress = 7;  // poll CommGetAsyncError()

  virtual ~NcclApi() = default;

  virtual int GetUniqueId(std::string& id) = 0;
  // A non-blocking communicator: the call returns kInProgress while others are missing. `*comm` may
  // be set even on an error; it then has to be aborted.
  virtual int CommInitRank(NcclCommunicator** comm, int size, const std::string& id, int rank) = 0;
  // `*error`: the communicator's state, kInProgress while a call on it proceeds.
  virtual int CommGetAsyncError(NcclCommunicator* comm, int* error) = 0;
  virtual int CommFinalize(NcclCommunicator* comm) = 0;
  virtual int CommDestroy(NcclCommunicator* comm) = 0;
  // Ends the communicator's kernels and frees it.
  virtual int CommAbort(NcclCommunicator* comm) = 0;
  // Whether work that the calling thread queues on its current stream is captured in a graph, to be
  // run later, rather than run. Nothing may then be asked of the device.
  virtual bool IsCapturing() { return false; }
  // Of the calling thread.
  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual std::string ErrorText(int result, NcclCommunicator* comm) = 0;

  // What only moves data moves bytes.
  virtual int AllGather(const void* shard, void* full, size_t shard_bytes, NcclCommunicator* comm,
                        const device::Stream& stream) = 0;
  virtual int ReduceScatter(const void* full, void* shard, size_t shard_count, at::ScalarType type,
                            NcclCommunicator* comm, const device::Stream& stream) = 0;
  virtual int AllReduce(void* data, size_t count, at::ScalarType type, ReduceOp op,
                        NcclCommunicator* comm, const device::Stream& stream) = 0;
  virtual int Broadcast(void* data, size_t bytes, int root, NcclCommunicator* comm,
                        const device::Stream& stream) = 0;
  virtual int Send(const void* data, size_t bytes, int to, NcclCommunicator* comm,
                   const device::Stream& stream) = 0;
  virtual int Receive(void* data, size_t bytes, int from, NcclCommunicator* comm,
                      const device::Stream& stream) = 0;

  // Its streams are those that the functions take.
  virtual device::Device& device() = 0;
};

// The table of the calling thread's current CUDA device. UNAVAILABLE without one; UNIMPLEMENTED in a
// build without TANDEM_CUDA.
absl::StatusOr<std::shared_ptr<NcclApi>> NcclOfCurrentDevice();

// Registers the library of another kind of accelerator, whose functions are NCCL's: `make` returns
// the table of the calling thread's current device, for every group created from now on. Null: NCCL
// again. Any thread.
using MakeNcclApi = std::function<absl::StatusOr<std::shared_ptr<NcclApi>>()>;
void UseCollectives(MakeNcclApi make);
// The registered library's table, or NcclOfCurrentDevice().
absl::StatusOr<std::shared_ptr<NcclApi>> CollectivesOfCurrentDevice();

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_NCCL_API_H_
