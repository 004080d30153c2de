// ProcessGroup over c10d's NCCL backend; built with TANDEM_CUDA.
//
// An operation is a kernel on the stream of the group's communicator: Wait() makes the current
// stream wait for it and returns. To find operations that never end, the group keeps a list of
// those in flight and checks it whenever an operation is issued or polled (WaitOnHost()), in
// Barrier() and in status(). If one is past its deadline, the group aborts the communicator, which
// ends its kernels here and, through the closed connections, on the peers. c10d's own watchdog,
// which would end the process, is off.
//
// A group creates its one communicator while joining, within the deadline. Messages use it too, as
// batches of one: otherwise c10d creates a communicator per pair of ranks at its first message.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/c10d_environment.h"
#include "common/comm/check_tensors.h"
#include "common/comm/link_facts.h"
#include "common/comm/process_group.h"
#include "common/comm/rendezvous_store.h"
#include "common/comm/run_with_deadline.h"
#include "common/comm/single_rank_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

using Backend = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;
using BackendWork = c10::intrusive_ptr<c10d::Work>;

constexpr absl::Duration kPollPause = absl::Microseconds(200);

struct Operation {
  std::string what;  // for messages
  BackendWork work;
  absl::Time deadline;
};

// Shared with the operations, which may outlive the group. Any thread.
class NcclState {
 public:
  NcclState(const GroupOptions& options, Backend backend)
      : name(options.name),
        rank(options.rank),
        size(options.size),
        timeout_(options.timeout),
        backend_(std::move(backend)) {}

  const std::string name;
  const int rank;
  const int size;

  template <typename Call>
  absl::StatusOr<BackendWork> Issue(std::string what, Call call) {
    absl::MutexLock lock(&mu_);
    CheckDeadlines();
    if (!broken_.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          what, ": the group is broken; create a new one; cause: ", broken_.message()));
    }
    try {
      BackendWork work = call(*backend_);
      under_way_.push_back({std::move(what), work, absl::Now() + timeout_});
      return work;
    } catch (const std::exception& error) {
      return BreakLocked(absl::UnavailableError(absl::StrCat(what, ": ", FirstLine(error.what()))));
    }
  }

  // Breaks the group where an operation has failed or is past its deadline.
  absl::Status Look() {
    absl::MutexLock lock(&mu_);
    CheckDeadlines();
    return broken_;
  }

  absl::Status Break(absl::Status reason) {
    absl::MutexLock lock(&mu_);
    return BreakLocked(std::move(reason));
  }

  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return broken_;
  }

  void SetTimeout(absl::Duration timeout) {
    absl::MutexLock lock(&mu_);
    timeout_ = timeout;
  }

 private:
  void CheckDeadlines() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (broken_.ok() && !under_way_.empty()) {
      // A communicator's operations run on one stream, in order, so the first is the oldest
      // unfinished.
      const Operation& first = under_way_.front();
      try {
        if (first.work->isCompleted()) {
          if (const std::exception_ptr error = first.work->exception())
            std::rethrow_exception(error);
          under_way_.pop_front();
          continue;
        }
      } catch (const std::exception& error) {
        BreakLocked(absl::UnavailableError(absl::StrCat(first.what, ": ", FirstLine(error.what()))))
            .IgnoreError();
        return;
      }
      if (absl::Now() >= first.deadline) {
        BreakLocked(
            absl::DeadlineExceededError(absl::StrCat(first.what, ": not finished by its deadline")))
            .IgnoreError();
      }
      return;
    }
  }

  absl::Status BreakLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!broken_.ok()) return broken_;
    broken_ = std::move(reason);
    under_way_.clear();
    try {
      backend_->abort();
    } catch (const std::exception&) {
      // The communicators are gone all the same.
    }
    return broken_;
  }

  mutable absl::Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  std::deque<Operation> under_way_ ABSL_GUARDED_BY(mu_);
  const Backend backend_;
};

class NcclWork : public Work {
 public:
  NcclWork(std::shared_ptr<NcclState> state, BackendWork work)
      : state_(std::move(state)), work_(std::move(work)) {}

  absl::Status Wait() override {
    RETURN_IF_ERROR(state_->status());
    try {
      work_->wait();
    } catch (const std::exception& error) {
      return state_->Break(absl::UnavailableError(
          absl::StrCat("group ", state_->name, ": ", FirstLine(error.what()))));
    }
    return absl::OkStatus();
  }
  bool IsCompleted() override {
    if (!state_->Look().ok()) return true;
    try {
      if (!work_->isCompleted()) return false;
    } catch (const std::exception& error) {
      state_
          ->Break(absl::UnavailableError(
              absl::StrCat("group ", state_->name, ": ", FirstLine(error.what()))))
          .IgnoreError();
      return true;
    }
    state_->Look().IgnoreError();  // breaks the group where the work has failed
    return true;
  }

 private:
  const std::shared_ptr<NcclState> state_;
  const BackendWork work_;
};

class NcclGroup : public ProcessGroup, public KnowsTransport {
 public:
  explicit NcclGroup(std::shared_ptr<NcclState> state) : state_(std::move(state)) {}

  const std::string& name() const override { return state_->name; }
  int rank() const override { return state_->rank; }
  int size() const override { return state_->size; }
  const char* transport() const override { return "nccl"; }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    const std::string what = Describe("all_gather", tag, full, "");
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      return backend._allgather_base(full, shard);
    });
  }

  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    const std::string what = Describe("reduce_scatter", tag, full, "");
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      return backend._reduce_scatter_base(shard, full);
    });
  }

  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    const std::string what = Describe("all_to_all", tag, in, "");
    RETURN_IF_ERROR(CheckSlices(out, in, size())) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      std::vector<int64_t> equal_slices;
      return backend.alltoall_base(out, in, equal_slices, equal_slices);
    });
  }

  WorkOr AllReduce(at::Tensor tensor, ReduceOp reduce, absl::string_view tag) override {
    const std::string what = Describe("all_reduce", tag, tensor, "");
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      c10d::AllreduceOptions options;
      options.reduceOp = reduce == ReduceOp::kSum   ? c10d::ReduceOp::SUM
                         : reduce == ReduceOp::kMax ? c10d::ReduceOp::MAX
                                                    : c10d::ReduceOp::MIN;
      std::vector<at::Tensor> tensors = {tensor};
      return backend.allreduce(tensors, options);
    });
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    const std::string what = Describe("broadcast", tag, tensor, absl::StrCat(" from rank ", root));
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    RETURN_IF_ERROR(CheckRank(root)) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      std::vector<at::Tensor> tensors = {tensor};
      return backend.broadcast(tensors, options);
    });
  }

  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    const std::string what = Describe("send", tag, tensor, absl::StrCat(" to rank ", to));
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    RETURN_IF_ERROR(CheckPeer(to)) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      std::vector<at::Tensor> tensors = {tensor};
      return AsBatch(backend, [&] { backend.send(tensors, to, 0); });
    });
  }

  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    const std::string what = Describe("receive", tag, tensor, absl::StrCat(" from rank ", from));
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    RETURN_IF_ERROR(CheckPeer(from)) << what;
    return Start(what, [&](c10d::ProcessGroupNCCL& backend) {
      std::vector<at::Tensor> tensors = {tensor};
      return AsBatch(backend, [&] { backend.recv(tensors, from, 0); });
    });
  }

  absl::Status Barrier(absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto work, AllReduce(at::zeros({1}, at::device(at::kCUDA).dtype(at::kInt)),
                                          ReduceOp::kSum, tag));
    // The host has to wait here; Wait() would only make the stream wait.
    while (!work->IsCompleted()) {
      RETURN_IF_ERROR(state_->Look());
      absl::SleepFor(kPollPause);
    }
    return state_->Look();
  }

  void SetTimeout(absl::Duration timeout) override { state_->SetTimeout(timeout); }
  absl::Status status() const override { return state_->Look(); }

  void Abort(absl::string_view reason) override {
    state_
        ->Break(absl::AbortedError(
            absl::StrCat("group ", name(), ", rank ", rank(), ": aborted: ", reason)))
        .IgnoreError();
  }

 private:
  std::string Describe(absl::string_view op, absl::string_view tag, const at::Tensor& tensor,
                       absl::string_view peer) const {
    return absl::StrCat("group ", name(), ", rank ", rank(), " of ", size(), ": ", op, " '", tag,
                        "' of ", tensor.defined() ? tensor.nbytes() : 0, " bytes", peer);
  }

  absl::Status CheckRank(int peer) const {
    if (peer >= 0 && peer < size()) return absl::OkStatus();
    return absl::InvalidArgumentError("no such rank");
  }

  absl::Status CheckPeer(int peer) const {
    RETURN_IF_ERROR(CheckRank(peer));
    if (peer == rank()) return absl::InvalidArgumentError("a rank cannot send to itself");
    return absl::OkStatus();
  }

  template <typename Issue>
  static BackendWork AsBatch(c10d::ProcessGroupNCCL& backend, Issue issue) {
    backend.startCoalescing();
    try {
      issue();
    } catch (...) {
      try {
        backend.endCoalescing();  // or this thread's next operations would be part of the batch
      } catch (const std::exception&) {
      }
      throw;
    }
    return backend.endCoalescing();
  }

  template <typename Call>
  WorkOr Start(const std::string& what, Call call) {
    ASSIGN_OR_RETURN(BackendWork work, state_->Issue(what, call));
    return std::make_unique<NcclWork>(state_, std::move(work));
  }

  const std::shared_ptr<NcclState> state_;
};

// Runs a first operation, which creates the communicator, and waits for it on the host.
void MakeCommunicator(c10d::ProcessGroupNCCL& backend, const std::atomic<bool>& abandoned) {
  std::vector<at::Tensor> tensors = {at::zeros({1}, at::device(at::kCUDA).dtype(at::kInt))};
  const BackendWork work = backend.allreduce(tensors);
  while (!work->isCompleted()) {
    if (abandoned.load()) {
      backend.abort();
      return;
    }
    absl::SleepFor(kPollPause);
  }
  if (const std::exception_ptr error = work->exception()) std::rethrow_exception(error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  const std::string what = absl::StrCat("group ", options.name, ", rank ", options.rank, " of ",
                                        options.size, ": rendezvous");
  c10::DeviceIndex device = 0;
  try {
    device = c10::cuda::current_device();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(what, ": no CUDA device: ", FirstLine(error.what())));
  }
  auto abandoned = std::make_shared<std::atomic<bool>>(false);
  std::function<Backend()> call = [rank = options.rank, size = options.size, device,
                                   timeout = options.timeout, rendezvous = options.rendezvous,
                                   abandoned] {
    const c10::cuda::CUDAGuard guard(device);  // of this thread
    auto store = RendezvousStore::Connect(rendezvous, timeout, abandoned);
    auto settings = c10d::ProcessGroupNCCL::Options::create();
    settings->timeout =
        std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout)));
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size,
                                                               std::move(settings));
    MakeCommunicator(*backend, *abandoned);
    return backend;
  };
  ASSIGN_OR_RETURN(Backend backend,
                   RunWithDeadline<Backend>(std::move(call), absl::Now() + options.timeout,
                                            options.cancel, abandoned, what));
  return std::make_unique<NcclGroup>(std::make_shared<NcclState>(options, std::move(backend)));
}

}  // namespace tandem::comm
