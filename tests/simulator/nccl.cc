#include "tests/simulator/nccl.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/comm/nccl_group.h"
#include "common/device/accelerator_device.h"

namespace tandem::testing {
namespace {

using Span = SimulatedAccelerator::Span;

std::byte* StreamAddress(const void* data) {
  return data == nullptr ? nullptr : SimulatedMemory::Get().OnStream(data);
}

at::Tensor TensorOf(std::byte* data, size_t count, at::ScalarType type) {
  return at::from_blob(data, {static_cast<int64_t>(count)}, at::TensorOptions(type));
}

}  // namespace

// What the ranks of a communicator share.
struct SimulatedNccl::Shared {
  struct Meeting {
    int arrived = 0;
    bool done = false;
    std::vector<Part> parts;  // by rank
  };
  struct Parcel {
    const std::byte* data = nullptr;
    bool taken = false;
  };

  absl::Mutex mu;
  int size ABSL_GUARDED_BY(mu) = 0;
  int initialised ABSL_GUARDED_BY(mu) = 0;
  bool aborted ABSL_GUARDED_BY(mu) = false;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings ABSL_GUARDED_BY(mu);  // by operation
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Parcel>>> parcels
      ABSL_GUARDED_BY(mu);  // by sender and receiver
};

struct SimulatedNccl::Comm {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  int size = 0;
  int64_t num_collectives = 0;  // issued
};

thread_local int SimulatedNccl::group_depth_ = 0;
thread_local std::vector<SimulatedNccl::Message> SimulatedNccl::group_messages_;

int SimulatedNccl::GetUniqueId(std::string& id) {
  static std::atomic<int> next{0};
  id = absl::StrCat("simulated ", next++);
  return kSuccess;
}

int SimulatedNccl::CommInitRank(comm::NcclCommunicator** comm, int size, const std::string& id,
                                int rank) {
  static absl::Mutex mu(absl::kConstInit);
  static auto& all = *new std::map<std::string, std::shared_ptr<Shared>>();
  std::shared_ptr<Shared> shared;
  {
    absl::MutexLock lock(&mu);
    std::shared_ptr<Shared>& found = all[id];
    if (found == nullptr) found = std::make_shared<Shared>();
    shared = found;
  }
  absl::MutexLock lock(&shared->mu);
  shared->size = size;
  ++shared->initialised;
  // Never freed, as work that is still queued may use it.
  *comm = reinterpret_cast<comm::NcclCommunicator*>(new Comm{shared, rank, size});
  return shared->initialised == size ? kSuccess : kInProgress;
}

int SimulatedNccl::CommGetAsyncError(comm::NcclCommunicator* comm, int* error) {
  Shared& shared = *CommOf(comm)->shared;
  absl::MutexLock lock(&shared.mu);
  *error = shared.initialised == shared.size ? kSuccess : kInProgress;
  return kSuccess;
}

int SimulatedNccl::CommAbort(comm::NcclCommunicator* comm) {
  Shared& shared = *CommOf(comm)->shared;
  absl::MutexLock lock(&shared.mu);
  shared.aborted = true;
  return kSuccess;
}

int SimulatedNccl::GroupStart() {
  ++group_depth_;
  return kSuccess;
}

int SimulatedNccl::GroupEnd() {
  if (--group_depth_ > 0) return kSuccess;
  return LaunchMessages(std::exchange(group_messages_, {}));
}

std::string SimulatedNccl::ErrorText(int result, comm::NcclCommunicator*) {
  return absl::StrCat("simulated NCCL: error ", result);
}

int SimulatedNccl::Collective(const char* name, const void* in, size_t in_bytes, void* out,
                              size_t out_bytes, comm::NcclCommunicator* handle,
                              const device::Stream& stream, Perform perform) {
  if (group_depth_ > 0) return kInvalidUsage;
  Comm& comm = *CommOf(handle);
  const int64_t number = comm.num_collectives++;
  const Part part{StreamAddress(in), StreamAddress(out)};
  SimulatedAccelerator::Operation operation;
  operation.what = absl::StrCat(name, " of rank ", comm.rank);
  operation.reads.push_back(Span{in, in_bytes});
  operation.writes.push_back(Span{out, out_bytes});
  operation.run = [shared = comm.shared, rank = comm.rank, size = comm.size, number, part,
                   perform = std::move(perform)] {
    const at::NoGradGuard no_grad;
    absl::MutexLock lock(&shared->mu);
    std::shared_ptr<Shared::Meeting>& slot = shared->meetings[number];
    if (slot == nullptr) {
      slot = std::make_shared<Shared::Meeting>();
      slot->parts.resize(size);
    }
    const std::shared_ptr<Shared::Meeting> meeting = slot;
    meeting->parts[rank] = part;
    if (++meeting->arrived == size) {
      perform(meeting->parts);
      meeting->done = true;
      shared->meetings.erase(number);
    }
    const auto over = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return meeting->done || shared->aborted;
    };
    shared->mu.Await(absl::Condition(&over));
  };
  SimulatedAccelerator::Get().Enqueue(device::AcceleratorDevice::StreamOf(stream),
                                      std::move(operation));
  return kSuccess;
}

int SimulatedNccl::AllGather(const void* shard, void* full, size_t shard_bytes,
                             comm::NcclCommunicator* comm, const device::Stream& stream) {
  return Collective("all_gather", shard, shard_bytes, full, shard_bytes * CommOf(comm)->size, comm,
                    stream, [shard_bytes](const std::vector<Part>& parts) {
                      for (const Part& to : parts) {
                        for (size_t r = 0; r < parts.size(); ++r) {
                          std::memmove(to.out + r * shard_bytes, parts[r].in, shard_bytes);
                        }
                      }
                    });
}

int SimulatedNccl::ReduceScatter(const void* full, void* shard, size_t shard_count,
                                 at::ScalarType type, comm::NcclCommunicator* comm,
                                 const device::Stream& stream) {
  const size_t shard_bytes = shard_count * c10::elementSize(type);
  return Collective("reduce_scatter", full, shard_bytes * CommOf(comm)->size, shard, shard_bytes,
                    comm, stream, [shard_count, shard_bytes, type](const std::vector<Part>& parts) {
                      for (size_t r = 0; r < parts.size(); ++r) {
                        at::Tensor sum = at::zeros({static_cast<int64_t>(shard_count)}, type);
                        for (const Part& from : parts) {
                          sum.add_(TensorOf(from.in + r * shard_bytes, shard_count, type));
                        }
                        TensorOf(parts[r].out, shard_count, type).copy_(sum);
                      }
                    });
}

int SimulatedNccl::AllReduce(void* data, size_t count, at::ScalarType type, comm::ReduceOp op,
                             comm::NcclCommunicator* comm, const device::Stream& stream) {
  const size_t bytes = count * c10::elementSize(type);
  return Collective("all_reduce", data, bytes, data, bytes, comm, stream,
                    [count, type, op](const std::vector<Part>& parts) {
                      at::Tensor total = TensorOf(parts[0].in, count, type).clone();
                      for (size_t r = 1; r < parts.size(); ++r) {
                        const at::Tensor next = TensorOf(parts[r].in, count, type);
                        if (op == comm::ReduceOp::kSum) total.add_(next);
                        if (op == comm::ReduceOp::kMax) total = at::maximum(total, next);
                        if (op == comm::ReduceOp::kMin) total = at::minimum(total, next);
                      }
                      for (const Part& part : parts) TensorOf(part.out, count, type).copy_(total);
                    });
}

int SimulatedNccl::Broadcast(void* data, size_t bytes, int root, comm::NcclCommunicator* comm,
                             const device::Stream& stream) {
  const bool is_root = CommOf(comm)->rank == root;
  return Collective("broadcast", data, is_root ? bytes : 0, data, is_root ? 0 : bytes, comm, stream,
                    [bytes, root](const std::vector<Part>& parts) {
                      for (const Part& part : parts) {
                        if (part.out != parts[root].in) {
                          std::memcpy(part.out, parts[root].in, bytes);
                        }
                      }
                    });
}

int SimulatedNccl::Send(const void* data, size_t bytes, int to, comm::NcclCommunicator* comm,
                        const device::Stream& stream) {
  return Add({CommOf(comm), &stream, true, to, const_cast<void*>(data), bytes});
}

int SimulatedNccl::Receive(void* data, size_t bytes, int from, comm::NcclCommunicator* comm,
                           const device::Stream& stream) {
  return Add({CommOf(comm), &stream, false, from, data, bytes});
}

int SimulatedNccl::Add(const Message& message) {
  if (group_depth_ == 0) return LaunchMessages({message});
  group_messages_.push_back(message);
  return kSuccess;
}

// The messages of a group are one piece of work: all sends are offered before a receive waits.
int SimulatedNccl::LaunchMessages(std::vector<Message> messages) {
  if (messages.empty()) return kSuccess;
  SimulatedAccelerator::Operation operation;
  operation.what = absl::StrCat(
      messages.size() == 1 ? messages[0].sends ? "send" : "receive" : "sends and receives",
      " of rank ", messages[0].comm->rank);
  for (const Message& message : messages) {
    (message.sends ? operation.reads : operation.writes).push_back({message.data, message.bytes});
  }
  const c10::Stream stream = device::AcceleratorDevice::StreamOf(*messages[0].stream);
  const std::shared_ptr<Shared> shared = messages[0].comm->shared;
  const int rank = messages[0].comm->rank;
  operation.run = [messages = std::move(messages), shared, rank] {
    absl::MutexLock lock(&shared->mu);
    std::vector<std::shared_ptr<Shared::Parcel>> sent;
    for (const Message& message : messages) {
      if (!message.sends) continue;
      sent.push_back(std::make_shared<Shared::Parcel>());
      sent.back()->data = StreamAddress(message.data);
      shared->parcels[{rank, message.peer}].push_back(sent.back());
    }
    for (const Message& message : messages) {
      if (message.sends) continue;
      auto& parcels = shared->parcels[{message.peer, rank}];
      const auto offered = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return !parcels.empty() || shared->aborted;
      };
      shared->mu.Await(absl::Condition(&offered));
      if (parcels.empty()) return;
      if (message.bytes > 0) {
        std::memcpy(StreamAddress(message.data), parcels.front()->data, message.bytes);
      }
      parcels.front()->taken = true;
      parcels.pop_front();
    }
    for (const auto& parcel : sent) {
      const auto taken = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return parcel->taken || shared->aborted;
      };
      shared->mu.Await(absl::Condition(&taken));
    }
  };
  SimulatedAccelerator::Get().Enqueue(stream, std::move(operation));
  return kSuccess;
}

void SimulatedNcclWorld::Run(const std::function<void(comm::ProcessGroup&)>& body,
                             const MakeDevice& make) {
  SimulatedAccelerator& accelerator = SimulatedAccelerator::Get();
  const auto store = comm::StoreServer::Start();
  TORCH_CHECK(store.ok(), store.status().ToString());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size_; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const c10::Device place = accelerator.device(rank);
      std::shared_ptr<device::Device> device =
          make != nullptr ? make(place) : device::Device::Create(place).value();
      device->MakeCurrent();
      comm::GroupOptions options;
      options.name = "simulated";
      options.rank = rank;
      options.size = size_;
      options.rendezvous.port = (*store)->port();
      options.rendezvous.prefix = "simulated";
      options.timeout = timeout_;
      options.family = absl::StrCat("rank ", rank);
      const auto group =
          comm::CreateNcclGroupOver(options, std::make_shared<SimulatedNccl>(std::move(device)));
      TORCH_CHECK(group.ok(), group.status().ToString());
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem::testing
