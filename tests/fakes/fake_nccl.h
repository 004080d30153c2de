// FakeNccl: an NcclApi on a CPU whose kernels end when every rank has issued them, so that a rank
// that dies leaves kernels which never end. It can block where NCCL may: while it initialises and
// while it connects. Like NCCL (nccl#549), an abort of one communicator waits for the kernels of the
// process's other ones; aborts in one group do not.
//
//   auto world = std::make_shared<FakeNcclWorld>(2);
//   auto rank_0 = std::make_shared<FakeNccl>(world, FakeNccl::Options{.blocking_connect = true});
//
// It moves no data. Any thread.
#ifndef TANDEM_TESTS_FAKES_FAKE_NCCL_H_
#define TANDEM_TESTS_FAKES_FAKE_NCCL_H_

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/nccl_api.h"
#include "common/device/cpu_device.h"

namespace tandem::testing {

// What the processes of a fake share: communicators by id, and how far each rank is in each.
class FakeNcclWorld {
 public:
  explicit FakeNcclWorld(int size) : size(size) {}

  struct Shared {
    std::map<int, int> issued;  // operations, by rank that has initialised
  };

  // Ends every blocked call: for the end of a test.
  void Shutdown() {
    absl::MutexLock lock(&mu);
    is_shut_down = true;
  }

  const int size;
  absl::Mutex mu;
  bool is_shut_down ABSL_GUARDED_BY(mu) = false;
  int next_id ABSL_GUARDED_BY(mu) = 0;
  std::map<std::string, Shared> shared ABSL_GUARDED_BY(mu);
};

// One process.
class FakeNccl : public comm::NcclApi {
 public:
  static constexpr int kSystemError = 2;

  struct Options {
    bool blocking_init = false;     // as if config.blocking were ignored
    bool blocking_connect = false;  // the first operation of a communicator blocks the host
    const absl::Notification* aborts_wait_for = nullptr;
  };

  FakeNccl(std::shared_ptr<FakeNcclWorld> world, Options options)
      : world_(std::move(world)), options_(options) {}
  explicit FakeNccl(std::shared_ptr<FakeNcclWorld> world) : FakeNccl(std::move(world), Options()) {}

  // What at::Tensor::item() does: waits for every kernel of this process.
  void SynchronizeDevice() {
    absl::MutexLock lock(&world_->mu);
    Await([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return AllKernelsEnded(nullptr); });
  }

  // The next question for the communicators' state finds an error.
  void FailAsynchronously() {
    absl::MutexLock lock(&world_->mu);
    for (auto& comm : comms_) comm->async_error = kSystemError;
  }

  // Returns whether `count` communicators have been aborted, by `timeout` at the latest.
  bool AwaitAborted(int count, absl::Duration timeout) {
    absl::MutexLock lock(&world_->mu);
    const auto aborted = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return num_freed_ >= count; };
    return world_->mu.AwaitWithTimeout(absl::Condition(&aborted), timeout);
  }
  int num_destroyed() const {
    absl::MutexLock lock(&world_->mu);
    return num_destroyed_;
  }

  // What is issued until EndCapture() is counted only when it is replayed on a stream.
  void BeginCapture() { capturing_ = true; }
  void EndCapture() { capturing_ = false; }
  void Replay(const device::Stream& stream) {
    for (Comm* comm : captured_) {
      Operate(Handle(comm), stream);
    }
  }

  int GetUniqueId(std::string& id) override {
    absl::MutexLock lock(&world_->mu);
    id = absl::StrCat("id ", world_->next_id++);
    return kSuccess;
  }

  int CommInitRank(comm::NcclCommunicator** comm, int, const std::string& id, int rank) override {
    absl::MutexLock lock(&world_->mu);
    comms_.push_back(std::make_unique<Comm>(Comm{&world_->shared[id], rank}));
    Comm* const made = comms_.back().get();
    made->shared->issued[rank] = 0;
    *comm = Handle(made);
    if (options_.blocking_init) {
      Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return IsInitialised(*made) || made->aborted; });
    }
    return StateOf(*made);
  }

  int CommGetAsyncError(comm::NcclCommunicator* comm, int* error) override {
    absl::MutexLock lock(&world_->mu);
    *error = StateOf(*CommOf(comm));
    return kSuccess;
  }

  int CommFinalize(comm::NcclCommunicator*) override { return kSuccess; }
  int CommDestroy(comm::NcclCommunicator* comm) override {
    absl::MutexLock lock(&world_->mu);
    CommOf(comm)->aborted = true;
    ++num_destroyed_;
    return kSuccess;
  }

  int CommAbort(comm::NcclCommunicator* comm) override {
    if (options_.aborts_wait_for != nullptr) options_.aborts_wait_for->WaitForNotification();
    absl::MutexLock lock(&world_->mu);
    CommOf(comm)->aborted = true;
    if (group_depth_ > 0) {
      group_aborts_.push_back(CommOf(comm));
    } else {
      Free(CommOf(comm));
    }
    return kSuccess;
  }

  bool IsCapturing() override { return capturing_; }
  int GroupStart() override {
    ++group_depth_;
    return kSuccess;
  }
  int GroupEnd() override {
    absl::MutexLock lock(&world_->mu);
    if (--group_depth_ > 0) return kSuccess;
    for (Comm* comm : std::exchange(group_aborts_, {})) Free(comm);
    Comm* const last = std::exchange(group_operation_, nullptr);
    return last == nullptr ? kSuccess : Launch(*last);
  }
  std::string ErrorText(int result, comm::NcclCommunicator*) override {
    return absl::StrCat("NCCL: error ", result);
  }

  int AllGather(const void*, void*, size_t, comm::NcclCommunicator* comm,
                const device::Stream& stream) override {
    return Operate(comm, stream);
  }
  int ReduceScatter(const void*, void*, size_t, at::ScalarType, comm::NcclCommunicator* comm,
                    const device::Stream& stream) override {
    return Operate(comm, stream);
  }
  int AllReduce(void*, size_t, at::ScalarType, comm::ReduceOp, comm::NcclCommunicator* comm,
                const device::Stream& stream) override {
    return Operate(comm, stream);
  }
  int Broadcast(void*, size_t, int, comm::NcclCommunicator* comm,
                const device::Stream& stream) override {
    return Operate(comm, stream);
  }
  int Send(const void*, size_t, int, comm::NcclCommunicator* comm,
           const device::Stream& stream) override {
    return Operate(comm, stream);
  }
  int Receive(void*, size_t, int, comm::NcclCommunicator* comm,
              const device::Stream& stream) override {
    return Operate(comm, stream);
  }

  device::Device& device() override { return device_; }

 private:
  struct Comm {
    FakeNcclWorld::Shared* shared;
    int rank;
    bool aborted = false;
    int async_error = kSuccess;
  };
  struct Stream : device::Stream {
    mutable Comm* comm = nullptr;  // of its last operation
  };
  struct Event : device::Event {
    Comm* comm = nullptr;
    int operations = 0;
  };

  // Streams that hold operations of a communicator; all else is the CPU's.
  class FakeDevice : public device::CpuDevice {
   public:
    explicit FakeDevice(FakeNccl& owner) : owner_(owner) {}
    std::unique_ptr<device::Stream> NewStream(device::Priority) override {
      return std::make_unique<Stream>();
    }
    std::shared_ptr<void> Use(const device::Stream& stream) override {
      current_ = &static_cast<const Stream&>(stream);
      return std::shared_ptr<void>(nullptr, [](void*) { current_ = nullptr; });
    }
    std::shared_ptr<device::Event> Record(absl::string_view) override {
      if (current_ == nullptr) return nullptr;
      absl::MutexLock lock(&owner_.world_->mu);
      auto event = std::make_shared<Event>();
      event->comm = current_->comm;
      event->operations = event->comm->shared->issued[event->comm->rank];
      return event;
    }
    bool IsDone(const device::Event& event) override {
      absl::MutexLock lock(&owner_.world_->mu);
      const auto& point = static_cast<const Event&>(event);
      return owner_.HasEnded(*point.comm, point.operations);
    }

   private:
    inline static thread_local const Stream* current_ = nullptr;
    FakeNccl& owner_;
  };

  static comm::NcclCommunicator* Handle(Comm* comm) {
    return reinterpret_cast<comm::NcclCommunicator*>(comm);
  }
  static Comm* CommOf(comm::NcclCommunicator* comm) { return reinterpret_cast<Comm*>(comm); }

  // Waits for `condition`, which is called with the world's lock held.
  template <typename Condition>
  void Await(Condition condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto done = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return condition() || world_->is_shut_down;
    };
    world_->mu.Await(absl::Condition(&done));
  }

  bool IsInitialised(const Comm& comm) const {
    return static_cast<int>(comm.shared->issued.size()) == world_->size;
  }
  // Connected: every rank has issued its first operation.
  bool IsConnected(const Comm& comm) const { return HasEnded(comm, 1); }
  bool HasEnded(const Comm& comm, int operations) const {
    if (comm.aborted) return true;
    return IsInitialised(comm) &&
           std::all_of(comm.shared->issued.begin(), comm.shared->issued.end(),
                       [&](const auto& rank) { return rank.second >= operations; });
  }
  bool AllKernelsEnded(const Comm* except) const {
    return std::all_of(comms_.begin(), comms_.end(), [&](const auto& comm) {
      return comm.get() == except || HasEnded(*comm, comm->shared->issued[comm->rank]);
    });
  }
  int StateOf(const Comm& comm) const {
    if (comm.async_error != kSuccess) return comm.async_error;
    if (!IsInitialised(comm)) return kInProgress;
    const bool connects = comm.shared->issued[comm.rank] > 0 && !IsConnected(comm);
    return connects ? kInProgress : kSuccess;
  }
  void Free(Comm* comm) {
    Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return AllKernelsEnded(comm); });
    ++num_freed_;
  }
  int Operate(comm::NcclCommunicator* handle, const device::Stream& stream) {
    absl::MutexLock lock(&world_->mu);
    Comm* const comm = CommOf(handle);
    static_cast<const Stream&>(stream).comm = comm;
    if (capturing_) {
      captured_.push_back(comm);
      return kSuccess;
    }
    if (group_depth_ > 0) {
      group_operation_ = comm;
      return kSuccess;
    }
    return Launch(*comm);
  }
  int Launch(Comm& comm) {
    if (comm.aborted) return kSystemError;
    ++comm.shared->issued[comm.rank];
    if (options_.blocking_connect) {
      Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return IsConnected(comm); });
    }
    return comm.aborted ? kSystemError : StateOf(comm);
  }

  inline static thread_local int group_depth_ = 0;
  inline static thread_local std::vector<Comm*> group_aborts_;
  inline static thread_local Comm* group_operation_ = nullptr;

  const std::shared_ptr<FakeNcclWorld> world_;
  const Options options_;
  FakeDevice device_{*this};
  // Never freed before the process of the fake: a use after an abort would be found by its state.
  std::vector<std::unique_ptr<Comm>> comms_;
  bool capturing_ = false;
  std::vector<Comm*> captured_;
  int num_freed_ = 0;
  int num_destroyed_ = 0;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_NCCL_H_
