#include "common/comm/mesh_group.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/engine_work.h"
#include "common/comm/link_facts.h"
#include "common/comm/mesh_collectives.h"
#include "common/comm/reduce_types.h"
#include "common/comm/single_rank_group.h"
#include "common/comm/socket_engine.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

absl::StatusOr<Reduction> ReductionOf(const at::Tensor& tensor, ReduceOp op) {
  Reduction reduction;
  reduction.kind = ToReduceKind(op);
  ASSIGN_OR_RETURN(reduction.type, ToReduceType(tensor.scalar_type()));
  reduction.element_bytes = static_cast<int64_t>(tensor.element_size());
  return reduction;
}

using MeshWork = EngineWork<SocketEngine, SocketTask>;

class MeshGroup : public ProcessGroup, public KnowsTransport {
 public:
  explicit MeshGroup(std::shared_ptr<SocketEngine> engine) : engine_(std::move(engine)) {}
  ~MeshGroup() override { Abort("the group was destroyed"); }

  const std::string& name() const override { return engine_->name(); }
  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  const char* transport() const override {
    return engine_->has_encrypted_links() ? "tls" : "socket";
  }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    const auto op = Collective("all_gather", tag, full);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << Describe(*op);
    const int64_t bytes = SizeOf(shard);
    Copy(DataOf(full) + rank() * bytes, DataOf(shard), bytes);
    CollectiveMessages messages = Messages(*op);
    messages.AllGather(DataOf(full), bytes);
    return Start(op, messages, {full, shard});
  }

  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    const auto op = Collective("reduce_scatter", tag, full);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << Describe(*op);
    ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(full, ReduceOp::kSum));
    CollectiveMessages messages = Messages(*op);
    messages.ReduceScatter(DataOf(shard), DataOf(full), SizeOf(shard), reduction);
    return Start(op, messages, {full, shard});
  }

  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    const auto op = Collective("all_to_all", tag, in);
    RETURN_IF_ERROR(CheckSlices(out, in, size())) << Describe(*op);
    const int64_t bytes = SizeOf(in) / size();
    Copy(DataOf(out) + rank() * bytes, DataOf(in) + rank() * bytes, bytes);
    CollectiveMessages messages = Messages(*op);
    messages.AllToAll(DataOf(out), DataOf(in), bytes);
    return Start(op, messages, {out, in});
  }

  WorkOr AllReduce(at::Tensor tensor, ReduceOp reduce, absl::string_view tag) override {
    const auto op = Collective("all_reduce", tag, tensor);
    RETURN_IF_ERROR(CheckTensor(tensor)) << Describe(*op);
    ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(tensor, reduce));
    CollectiveMessages messages = Messages(*op);
    messages.AllReduce(DataOf(tensor), SizeOf(tensor), reduction);
    return Start(op, messages, {tensor});
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    const auto op = Collective("broadcast", tag, tensor);
    op->what.peer = root;
    RETURN_IF_ERROR(CheckTensor(tensor)) << Describe(*op);
    if (root < 0 || root >= size()) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(*op), ": no such rank"));
    }
    CollectiveMessages messages = Messages(*op);
    messages.Broadcast(DataOf(tensor), SizeOf(tensor), root);
    return Start(op, messages, {tensor});
  }

  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto message, Message("send", tensor, to, tag));
    RETURN_IF_ERROR(engine_->Send(message));
    return std::make_unique<MeshWork>(engine_, std::move(message));
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto message, Message("receive", tensor, from, tag));
    RETURN_IF_ERROR(engine_->Receive(message));
    return std::make_unique<MeshWork>(engine_, std::move(message));
  }

  absl::Status Barrier(absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto work, AllReduce(at::zeros({1}, at::kInt), ReduceOp::kSum, tag));
    return work->Wait();
  }

  void SetTimeout(absl::Duration timeout) override { engine_->SetTimeout(timeout); }
  absl::Status status() const override { return engine_->status(); }
  void Abort(absl::string_view reason) override {
    engine_->Break(absl::AbortedError(
        absl::StrCat("group ", name(), ", rank ", rank(), ": aborted: ", reason)));
  }

 private:
  std::string Describe(const SocketTask& task) const {
    return DescribeOperation(name(), rank(), size(), task.what);
  }

  static std::shared_ptr<SocketCollective> Collective(const char* name, absl::string_view tag,
                                                      const at::Tensor& tensor) {
    auto op = std::make_shared<SocketCollective>();
    op->what.op = name;
    op->what.tag = std::string(tag);
    op->what.bytes = tensor.defined() ? SizeOf(tensor) : 0;
    return op;
  }

  CollectiveMessages Messages(const SocketCollective& op) const {
    return CollectiveMessages(rank(), size(), absl::StrCat(op.what.op, " ", op.what.tag));
  }

  WorkOr Start(std::shared_ptr<SocketCollective> op, CollectiveMessages& messages,
               std::vector<at::Tensor> tensors) {
    op->tensors = std::move(tensors);
    RETURN_IF_ERROR(engine_->Start(op, messages.Take()));
    return std::make_unique<MeshWork>(engine_, std::move(op));
  }

  absl::StatusOr<std::shared_ptr<SocketMessage>> Message(const char* op, const at::Tensor& tensor,
                                                         int peer, absl::string_view tag) const {
    auto message = std::make_shared<SocketMessage>();
    message->what.op = op;
    message->what.tag = std::string(tag);
    message->what.peer = peer;
    RETURN_IF_ERROR(CheckTensor(tensor)) << Describe(*message);
    if (peer < 0 || peer >= size() || peer == rank()) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(*message), ": no such peer"));
    }
    message->what.bytes = SizeOf(tensor);
    message->data = DataOf(tensor);
    // Not the collectives' links: there a message that nobody receives yet would hold up the
    // collectives behind it.
    message->link = size() + peer;  // the second ones
    message->tensors = {tensor};
    return message;
  }

  const std::shared_ptr<SocketEngine> engine_;
};

absl::StatusOr<std::shared_ptr<SocketEngine>> JoinMesh(const GroupOptions& options,
                                                       const LinkPlan& plan) {
  const absl::Time deadline = absl::Now() + options.timeout;
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  std::vector<SocketLink> links;
  for (const char* lane : {"collectives", "messages"}) {
    ASSIGN_OR_RETURN(std::vector<SocketLink> of_lane,
                     ConnectLinks(options, plan, lane, deadline, cancelled));
    for (SocketLink& link : of_lane) links.push_back(std::move(link));
  }
  return SocketEngine::Create(options.name, options.rank, options.size, options.timeout,
                              std::move(links), /*has_thread=*/true);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateMeshGroup(const GroupOptions& options,
                                                              const LinkPlan& plan) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  if (options.size > static_cast<int>(kMaxReduceSources)) {
    return absl::UnimplementedError(
        absl::StrCat("group ", options.name, ": encrypted groups have at most ", kMaxReduceSources,
                     " ranks, found ", options.size));
  }
  absl::StatusOr<std::shared_ptr<SocketEngine>> engine = JoinMesh(options, plan);
  if (!engine.ok()) return RendezvousError(options, engine.status());
  return std::make_unique<MeshGroup>(*std::move(engine));
}

}  // namespace tandem::comm
