// ProcessGroup over c10d's Gloo backend.
//
// Gloo has no abort. What it has: when a wait for a buffer times out, every connection of the
// context is closed, which ends all operations on them here and, by the closed sockets, on the
// peers. Break() makes that happen on purpose: it posts a receive that nobody sends to and lets it
// time out at once.
#include <ATen/ATen.h>
#include <signal.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/c10d_environment.h"
#include "common/comm/check_tensors.h"
#include "common/comm/link_facts.h"
#include "common/comm/local_address.h"
#include "common/comm/operation.h"
#include "common/comm/process_group.h"
#include "common/comm/rendezvous_store.h"
#include "common/comm/run_with_deadline.h"
#include "common/comm/single_rank_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using Backend = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using BackendWork = c10::intrusive_ptr<c10d::Work>;

// Gloo's own timers run a little longer than ours, so that ours give the message.
constexpr absl::Duration kBackendSlack = absl::Seconds(2);
constexpr int kBreakTag = 0x7fffffff;
constexpr uint32_t kMaxPeerTag = 0x3fffffff;

milliseconds ToMilliseconds(absl::Duration d) {
  return milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(d)));
}

// Outlives the group while operations are under way. Any thread.
class GlooState {
 public:
  GlooState(const GroupOptions& options, Backend backend)
      : name(options.name),
        rank(options.rank),
        size(options.size),
        timeout_(options.timeout),
        backend_(std::move(backend)),
        sent_(options.size, 0),
        received_(options.size, 0) {}

  const std::string name;
  const int rank;
  const int size;

  std::string Describe(const Operation& op) const {
    return DescribeOperation(name, rank, size, op);
  }

  // Issues an operation on the backend; `call` throws what Gloo throws.
  template <typename Call>
  absl::StatusOr<BackendWork> Issue(Operation& op, Call call) {
    absl::MutexLock lock(&mu_);
    op.timeout = timeout_;
    op.deadline = absl::Now() + timeout_;
    if (!broken_.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(op), ": the group is broken, make a new one; cause: ", broken_.message()));
    }
    try {
      BackendWork work = call(*backend_);
      ++under_way_;
      return work;
    } catch (const std::exception& error) {
      return BreakLocked(
          absl::UnavailableError(absl::StrCat(Describe(op), ": ", FirstLine(error.what()))));
    }
  }

  int NextSendTag(int to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return sent_[to]++ & kMaxPeerTag; }
  int NextReceiveTag(int from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return received_[from]++ & kMaxPeerTag;
  }

  // Closes the connections. Answers the first reason.
  absl::Status Break(absl::Status reason) {
    absl::MutexLock lock(&mu_);
    return BreakLocked(std::move(reason));
  }

  void SetTimeout(absl::Duration timeout) {
    absl::MutexLock lock(&mu_);
    timeout_ = timeout;
    backend_->setTimeout(ToMilliseconds(timeout + kBackendSlack));
  }

  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return broken_;
  }

  void Finished() {
    absl::MutexLock lock(&mu_);
    --under_way_;
  }

  bool IsUnderWay() const {
    absl::MutexLock lock(&mu_);
    return under_way_ > 0;
  }

  mutable absl::Mutex mu_;

 private:
  absl::Status BreakLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!broken_.ok()) return broken_;
    broken_ = std::move(reason);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      try {
        std::vector<at::Tensor> nothing = {at::zeros({1}, at::kByte)};
        backend_->recv(nothing, peer, kBreakTag)->wait(milliseconds(1));
      } catch (const std::exception&) {
        // Expected: the time-out has closed all connections, or this one was closed already.
      }
    }
    return broken_;
  }

  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  const Backend backend_;
  std::vector<uint32_t> sent_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> received_ ABSL_GUARDED_BY(mu_);
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
};

class GlooWork : public Work {
 public:
  GlooWork(std::shared_ptr<GlooState> state, Operation op, BackendWork work, at::Tensor first,
           at::Tensor second = {})
      : state_(std::move(state)),
        op_(std::move(op)),
        work_(std::move(work)),
        first_(std::move(first)),
        second_(std::move(second)) {}

  ~GlooWork() override {
    if (!done_) state_->Finished();
  }

  absl::Status Wait() override {
    if (done_) return result_;
    try {
      const bool finished = work_->wait(ToMilliseconds(op_.deadline - absl::Now()));
      if (!finished) result_ = absl::AbortedError(absl::StrCat(state_->Describe(op_), ": aborted"));
    } catch (const std::exception& error) {
      result_ = Explain(FirstLine(error.what()));
    }
    done_ = true;
    state_->Finished();
    return result_;
  }

  bool IsCompleted() override { return done_ || work_->isCompleted(); }

 private:
  absl::Status Explain(const std::string& what) {
    const absl::Status earlier = state_->status();
    if (!earlier.ok()) {
      return absl::Status(
          earlier.code(),
          absl::StrCat(state_->Describe(op_), ": ended, for the group broke: ", earlier.message()));
    }
    absl::Status status;
    if (absl::Now() >= op_.deadline) {
      status = absl::DeadlineExceededError(absl::StrCat(state_->Describe(op_), ": not done after ",
                                                        absl::FormatDuration(op_.timeout)));
    } else {
      status =
          absl::UnavailableError(absl::StrCat(state_->Describe(op_), ": a peer is gone: ", what));
    }
    return state_->Break(std::move(status));
  }

  const std::shared_ptr<GlooState> state_;
  const Operation op_;
  const BackendWork work_;
  const at::Tensor first_, second_;  // held until done
  bool done_ = false;
  absl::Status result_;
};

class GlooGroup : public ProcessGroup, public KnowsTransport {
 public:
  const char* transport() const override { return "gloo"; }
  explicit GlooGroup(std::shared_ptr<GlooState> state) : state_(std::move(state)) {}

  ~GlooGroup() override {
    // The backend's destructor waits for its queue.
    if (state_->IsUnderWay()) Abort("the group was destroyed with operations under way");
  }

  const std::string& name() const override { return state_->name; }
  int rank() const override { return state_->rank; }
  int size() const override { return state_->size; }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    Operation op = Describe("all_gather", tag, full, -1);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << state_->Describe(op);
    return Start(op, full, shard, [&](c10d::ProcessGroupGloo& backend) {
      return backend._allgather_base(full, shard);
    });
  }

  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    Operation op = Describe("reduce_scatter", tag, full, -1);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << state_->Describe(op);
    return Start(op, full, shard, [&](c10d::ProcessGroupGloo& backend) {
      return backend._reduce_scatter_base(shard, full);
    });
  }

  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    Operation op = Describe("all_to_all", tag, in, -1);
    RETURN_IF_ERROR(CheckSlices(out, in, size())) << state_->Describe(op);
    return Start(op, out, in, [&](c10d::ProcessGroupGloo& backend) {
      std::vector<int64_t> equal_slices;
      return backend.alltoall_base(out, in, equal_slices, equal_slices);
    });
  }

  WorkOr AllReduce(at::Tensor tensor, ReduceOp reduce, absl::string_view tag) override {
    Operation op = Describe("all_reduce", tag, tensor, -1);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    return Start(op, tensor, {}, [&](c10d::ProcessGroupGloo& backend) {
      c10d::AllreduceOptions options;
      options.reduceOp = reduce == ReduceOp::kSum   ? c10d::ReduceOp::SUM
                         : reduce == ReduceOp::kMax ? c10d::ReduceOp::MAX
                                                    : c10d::ReduceOp::MIN;
      std::vector<at::Tensor> tensors = {tensor};
      return backend.allreduce(tensors, options);
    });
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    Operation op = Describe("broadcast", tag, tensor, root);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    RETURN_IF_ERROR(CheckRank(root)) << state_->Describe(op);
    return Start(op, tensor, {}, [&](c10d::ProcessGroupGloo& backend) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.rootTensor = 0;
      std::vector<at::Tensor> tensors = {tensor};
      return backend.broadcast(tensors, options);
    });
  }

  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    Operation op = Describe("send", tag, tensor, to);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    RETURN_IF_ERROR(CheckPeer(to)) << state_->Describe(op);
    return Start(op, tensor, {}, [&](c10d::ProcessGroupGloo& backend) {
      state_->mu_.AssertHeld();
      std::vector<at::Tensor> tensors = {tensor};
      return backend.send(tensors, to, state_->NextSendTag(to));
    });
  }

  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    Operation op = Describe("receive", tag, tensor, from);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    RETURN_IF_ERROR(CheckPeer(from)) << state_->Describe(op);
    return Start(op, tensor, {}, [&](c10d::ProcessGroupGloo& backend) {
      state_->mu_.AssertHeld();
      std::vector<at::Tensor> tensors = {tensor};
      return backend.recv(tensors, from, state_->NextReceiveTag(from));
    });
  }

  absl::Status Barrier(absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto work, AllReduce(at::zeros({1}, at::kInt), ReduceOp::kSum, tag));
    return work->Wait();
  }

  void SetTimeout(absl::Duration timeout) override { state_->SetTimeout(timeout); }
  absl::Status status() const override { return state_->status(); }

  void Abort(absl::string_view reason) override {
    state_
        ->Break(absl::AbortedError(
            absl::StrCat("group ", name(), ", rank ", rank(), ": aborted: ", reason)))
        .IgnoreError();
  }

 private:
  static Operation Describe(const char* name, absl::string_view tag, const at::Tensor& tensor,
                            int peer) {
    Operation op;
    op.op = name;
    op.tag = std::string(tag);
    op.bytes = tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
    op.peer = peer;
    return op;
  }

  absl::Status CheckRank(int peer) const {
    if (peer >= 0 && peer < size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("no such rank"));
  }

  absl::Status CheckPeer(int peer) const {
    RETURN_IF_ERROR(CheckRank(peer));
    if (peer == rank()) return absl::InvalidArgumentError("a rank sends nothing to itself");
    return absl::OkStatus();
  }

  template <typename Call>
  WorkOr Start(Operation& op, at::Tensor first, at::Tensor second, Call call) {
    ASSIGN_OR_RETURN(BackendWork work, state_->Issue(op, call));
    return std::make_unique<GlooWork>(state_, std::move(op), std::move(work), std::move(first),
                                      std::move(second));
  }

  const std::shared_ptr<GlooState> state_;
};

// Gloo writes to peers that may have gone. The error is wanted, not the signal, which would end a
// process that says nothing of it.
void IgnoreBrokenPipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGlooGroup(const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  IgnoreBrokenPipes();

  std::string address = options.advertise_host;
  if (address.empty()) {
    ASSIGN_OR_RETURN(address, LocalAddressTowards(options.rendezvous.host));
  }
  auto abandoned = std::make_shared<std::atomic<bool>>(false);
  std::function<Backend()> call = [rank = options.rank, size = options.size,
                                   timeout = options.timeout, rendezvous = options.rendezvous,
                                   address, abandoned] {
    auto store = RendezvousStore::Connect(rendezvous, timeout, abandoned);
    auto settings =
        c10d::ProcessGroupGloo::Options::create(ToMilliseconds(timeout + kBackendSlack));
    settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), rank, size,
                                                       std::move(settings));
  };
  ASSIGN_OR_RETURN(Backend backend,
                   RunWithDeadline<Backend>(
                       std::move(call), absl::Now() + options.timeout, options.cancel, abandoned,
                       absl::StrCat("group ", options.name, ", rank ", options.rank, " of ",
                                    options.size, ": rendezvous at ", options.rendezvous.host, ":",
                                    options.rendezvous.port, " as ", options.rendezvous.prefix)));
  return std::make_unique<GlooGroup>(std::make_shared<GlooState>(options, std::move(backend)));
}

}  // namespace tandem::comm
