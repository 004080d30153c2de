// ProcessGroup over c10d's Gloo backend.
#include <ATen/ATen.h>
#include <signal.h>

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/comm/c10d_environment.h"
#include "common/comm/check_tensors.h"
#include "common/comm/gloo_links.h"
#include "common/comm/gloo_state.h"
#include "common/comm/link_facts.h"
#include "common/comm/local_address.h"
#include "common/comm/operation.h"
#include "common/comm/process_group.h"
#include "common/comm/rendezvous_store.h"
#include "common/comm/run_with_deadline.h"
#include "common/comm/single_rank_group.h"
#include "common/comm/socket_links.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

class GlooWork : public Work {
 public:
  GlooWork(std::shared_ptr<GlooState> state, std::shared_ptr<GlooState::Issued> issued,
           at::Tensor first, at::Tensor second, std::function<void()> then)
      : state_(std::move(state)),
        issued_(std::move(issued)),
        first_(std::move(first)),
        second_(std::move(second)),
        then_(std::move(then)) {}

  ~GlooWork() override {
    if (!done_) state_->Forget(issued_);
  }

  absl::Status Wait() override {
    if (done_) return result_;
    result_ = state_->Wait(*issued_);
    if (result_.ok() && then_ != nullptr) then_();
    done_ = true;
    state_->Forget(issued_);
    return result_;
  }

  bool IsCompleted() override {
    return done_ || issued_->work->isCompleted() || !state_->status().ok();
  }

 private:
  const std::shared_ptr<GlooState> state_;
  const std::shared_ptr<GlooState::Issued> issued_;
  const at::Tensor first_, second_;  // held until done
  const std::function<void()> then_;
  bool done_ = false;
  absl::Status result_;
};

class GlooGroup : public ProcessGroup, public KnowsTransport {
 public:
  const char* transport() const override { return "gloo"; }
  explicit GlooGroup(std::shared_ptr<GlooState> state) : state_(std::move(state)) {}

  ~GlooGroup() override {
    // The backend's destructor waits for its queue.
    if (state_->IsUnderWay()) Abort("the group was destroyed while operations were in flight");
  }

  const std::string& name() const override { return state_->name; }
  int rank() const override { return state_->rank; }
  int size() const override { return state_->size; }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    Operation op = Describe("all_gather", tag, full, -1);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << state_->Describe(op);
    return Start(
        op, GlooState::Kind::kCollective, full, shard,
        [&](c10d::ProcessGroupGloo& backend, int) { return backend._allgather_base(full, shard); });
  }

  // c10d's own is an AllReduce of a copy and does not show when its result is ready.
  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    Operation op = Describe("reduce_scatter", tag, full, -1);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << state_->Describe(op);
    return Start(
        op, GlooState::Kind::kCollective, full, shard,
        [&](c10d::ProcessGroupGloo& backend, int) {
          return Reduce(backend, full, c10d::ReduceOp::SUM);
        },
        [part = full.chunk(size())[rank()], shard] { shard.copy_(part); });
  }

  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    Operation op = Describe("all_to_all", tag, in, -1);
    RETURN_IF_ERROR(CheckSlices(out, in, size())) << state_->Describe(op);
    return Start(op, GlooState::Kind::kCollective, out, in,
                 [&](c10d::ProcessGroupGloo& backend, int) {
                   std::vector<int64_t> equal_slices;
                   return backend.alltoall_base(out, in, equal_slices, equal_slices);
                 });
  }

  WorkOr AllReduce(at::Tensor tensor, ReduceOp reduce, absl::string_view tag) override {
    Operation op = Describe("all_reduce", tag, tensor, -1);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    return Start(op, GlooState::Kind::kCollective, tensor, {},
                 [&](c10d::ProcessGroupGloo& backend, int) {
                   return Reduce(backend, tensor,
                                 reduce == ReduceOp::kSum   ? c10d::ReduceOp::SUM
                                 : reduce == ReduceOp::kMax ? c10d::ReduceOp::MAX
                                                            : c10d::ReduceOp::MIN);
                 });
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    Operation op = Describe("broadcast", tag, tensor, root);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    RETURN_IF_ERROR(CheckRank(root)) << state_->Describe(op);
    return Start(op, GlooState::Kind::kCollective, tensor, {},
                 [&](c10d::ProcessGroupGloo& backend, int) {
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
    return Start(op, GlooState::Kind::kSend, tensor, {},
                 [&](c10d::ProcessGroupGloo& backend, int tag) {
                   std::vector<at::Tensor> tensors = {tensor};
                   return backend.send(tensors, to, tag);
                 });
  }

  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    Operation op = Describe("receive", tag, tensor, from);
    RETURN_IF_ERROR(CheckTensor(tensor)) << state_->Describe(op);
    RETURN_IF_ERROR(CheckPeer(from)) << state_->Describe(op);
    return Start(op, GlooState::Kind::kReceive, tensor, {},
                 [&](c10d::ProcessGroupGloo& backend, int tag) {
                   std::vector<at::Tensor> tensors = {tensor};
                   return backend.recv(tensors, from, tag);
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
    if (peer == rank()) return absl::InvalidArgumentError("a rank cannot send to itself");
    return absl::OkStatus();
  }

  static GlooBackendWork Reduce(c10d::ProcessGroupGloo& backend, at::Tensor tensor,
                                c10d::ReduceOp::RedOpType reduce) {
    c10d::AllreduceOptions options;
    options.reduceOp = reduce;
    std::vector<at::Tensor> tensors = {std::move(tensor)};
    return backend.allreduce(tensors, options);
  }

  // `first` and `second` are held until it is done; `then` is done with it.
  WorkOr Start(const Operation& op, GlooState::Kind kind, at::Tensor first, at::Tensor second,
               const GlooState::IssueCall& call, std::function<void()> then = nullptr) {
    ASSIGN_OR_RETURN(auto issued, state_->Issue(op, kind, call));
    return std::make_unique<GlooWork>(state_, std::move(issued), std::move(first),
                                      std::move(second), std::move(then));
  }

  const std::shared_ptr<GlooState> state_;
};

// Gloo writes to peers that may be gone. The error is enough: the signal that comes with it would
// end the process without a word.
void IgnoreBrokenPipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

// Connections to all other ranks, for Gloo to take.
absl::StatusOr<std::unique_ptr<GlooLinks>> ConnectLinks(const GroupOptions& options,
                                                        absl::Time deadline) {
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  std::string host = options.advertise_host;
  if (host.empty()) {
    ASSIGN_OR_RETURN(host, LocalAddressTowards(options.rendezvous.host));
  }
  ASSIGN_OR_RETURN(auto store, StoreConnection::Open(options.rendezvous, deadline, cancelled));
  ASSIGN_OR_RETURN(auto sockets,
                   ConnectSockets(host, options.rank, options.size, *store, deadline, cancelled));
  return GlooLinks::Create(std::move(sockets));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGlooGroup(const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  IgnoreBrokenPipes();

  const absl::Time deadline = absl::Now() + options.timeout;
  auto links = ConnectLinks(options, deadline);
  if (!links.ok()) return RendezvousError(options, links.status());
  auto abandoned = std::make_shared<std::atomic<bool>>(false);
  std::function<GlooBackend()> call = [rank = options.rank, size = options.size,
                                       timeout = options.timeout, rendezvous = options.rendezvous,
                                       links = std::shared_ptr(*std::move(links)), abandoned] {
    auto store = RendezvousStore::Connect(rendezvous, timeout, abandoned);
    auto settings = c10d::ProcessGroupGloo::Options::create(ToMilliseconds(timeout + kGlooSlack));
    settings->devices.push_back(links->device());
    return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), rank, size,
                                                       std::move(settings));
  };
  ASSIGN_OR_RETURN(GlooBackend backend,
                   RunWithDeadline<GlooBackend>(
                       std::move(call), deadline, options.cancel, abandoned,
                       absl::StrCat("group ", options.name, ", rank ", options.rank, " of ",
                                    options.size, ": rendezvous at ", options.rendezvous.host, ":",
                                    options.rendezvous.port, " as ", options.rendezvous.prefix)));
  return std::make_unique<GlooGroup>(std::make_shared<GlooState>(options, std::move(backend)));
}

}  // namespace tandem::comm
