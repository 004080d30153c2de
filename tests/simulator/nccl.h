// SimulatedNccl: an NcclApi that moves bytes between simulated devices, so that NcclGroup's own code
// runs on them. An operation is work on a stream that ends when every rank's stream has reached it.
// Sums are made in the order of ranks, as LocalGroup (tests/fakes/local_process_group.h) makes them.
//
//   SimulatedNcclWorld world(2);
//   world.Run([](comm::ProcessGroup& group) { ...; });   // a thread and a device for each rank
#ifndef TANDEM_TESTS_SIMULATOR_NCCL_H_
#define TANDEM_TESTS_SIMULATOR_NCCL_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/nccl_api.h"
#include "common/comm/process_group.h"
#include "common/device/device.h"
#include "tests/simulator/accelerator.h"

namespace tandem::testing {

class SimulatedNccl : public comm::NcclApi {
 public:
  static constexpr int kInvalidUsage = 5;

  // `device` is the one that queues; a test may put one between that leaves something out.
  explicit SimulatedNccl(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}

  int GetUniqueId(std::string& id) override;
  int CommInitRank(comm::NcclCommunicator** comm, int size, const std::string& id,
                   int rank) override;
  int CommGetAsyncError(comm::NcclCommunicator* comm, int* error) override;
  int CommFinalize(comm::NcclCommunicator*) override { return kSuccess; }
  int CommDestroy(comm::NcclCommunicator*) override { return kSuccess; }
  int CommAbort(comm::NcclCommunicator* comm) override;
  int GroupStart() override;
  int GroupEnd() override;
  std::string ErrorText(int result, comm::NcclCommunicator*) override;
  int AllGather(const void* shard, void* full, size_t shard_bytes, comm::NcclCommunicator* comm,
                const device::Stream& stream) override;
  int ReduceScatter(const void* full, void* shard, size_t shard_count, at::ScalarType type,
                    comm::NcclCommunicator* comm, const device::Stream& stream) override;
  int AllReduce(void* data, size_t count, at::ScalarType type, comm::ReduceOp op,
                comm::NcclCommunicator* comm, const device::Stream& stream) override;
  int Broadcast(void* data, size_t bytes, int root, comm::NcclCommunicator* comm,
                const device::Stream& stream) override;
  int Send(const void* data, size_t bytes, int to, comm::NcclCommunicator* comm,
           const device::Stream& stream) override;
  int Receive(void* data, size_t bytes, int from, comm::NcclCommunicator* comm,
              const device::Stream& stream) override;
  device::Device& device() override { return *device_; }

 private:
  struct Shared;
  struct Comm;
  // A collective of one rank: its input and output, and what the last rank to arrive does with all.
  struct Part {
    std::byte* in = nullptr;
    std::byte* out = nullptr;
  };
  using Perform = std::function<void(const std::vector<Part>&)>;
  int Collective(const char* name, const void* in, size_t in_bytes, void* out, size_t out_bytes,
                 comm::NcclCommunicator* comm, const device::Stream& stream, Perform perform);
  // A send or receive, alone or in a group.
  struct Message {
    Comm* comm = nullptr;
    const device::Stream* stream = nullptr;
    bool sends = false;
    int peer = 0;
    void* data = nullptr;
    size_t bytes = 0;
  };
  static int Add(const Message& message);
  static int LaunchMessages(std::vector<Message> messages);
  static Comm* CommOf(comm::NcclCommunicator* comm) { return reinterpret_cast<Comm*>(comm); }

  static thread_local int group_depth_;
  static thread_local std::vector<Message> group_messages_;

  const std::shared_ptr<device::Device> device_;
};

class SimulatedNcclWorld {
 public:
  // timeout: of each collective.
  explicit SimulatedNcclWorld(int size, absl::Duration timeout = absl::Minutes(2))
      : size_(size), timeout_(timeout) {}

  // The device of a rank; by default the one of Device::Create().
  using MakeDevice = std::function<std::shared_ptr<device::Device>(c10::Device)>;
  void Run(const std::function<void(comm::ProcessGroup&)>& body, const MakeDevice& make = nullptr);

 private:
  const int size_;
  const absl::Duration timeout_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMULATOR_NCCL_H_
