// ProcessGroup for messages only, over TCP, TLS or local sockets; it has no collectives.
#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/choose_group.h"
#include "common/comm/engine_work.h"
#include "common/comm/link_agreement.h"
#include "common/comm/link_facts.h"
#include "common/comm/local_links.h"
#include "common/comm/message_taker.h"
#include "common/comm/process_group.h"
#include "common/comm/single_rank_group.h"
#include "common/comm/socket_engine.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

using SocketWork = EngineWork<SocketEngine, SocketTask>;

class SocketGroup : public ProcessGroup, public TakingGroup, public KnowsTransport {
 public:
  SocketGroup(std::shared_ptr<SocketEngine> engine, const char* transport)
      : engine_(std::move(engine)), transport_(transport) {}
  ~SocketGroup() override { Abort("the group was destroyed"); }

  const std::string& name() const override { return engine_->name(); }
  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  const char* transport() const override { return transport_; }

  WorkOr AllGather(at::Tensor, at::Tensor, absl::string_view) override {
    return NoCollectives("all_gather");
  }
  WorkOr ReduceScatter(at::Tensor, at::Tensor, absl::string_view) override {
    return NoCollectives("reduce_scatter");
  }
  WorkOr AllToAll(at::Tensor, at::Tensor, absl::string_view) override {
    return NoCollectives("all_to_all");
  }
  WorkOr AllReduce(at::Tensor, ReduceOp, absl::string_view) override {
    return NoCollectives("all_reduce");
  }
  WorkOr Broadcast(at::Tensor, int, absl::string_view) override {
    return NoCollectives("broadcast");
  }
  absl::Status Barrier(absl::string_view) override { return NoCollectives("barrier"); }

  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto message, Message("send", tensor, to, tag));
    RETURN_IF_ERROR(engine_->Send(message));
    return std::make_unique<SocketWork>(engine_, std::move(message));
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    return ReceiveBy(std::move(tensor), from, tag, nullptr);
  }
  WorkOr ReceiveWith(at::Tensor tensor, int from, absl::string_view tag,
                     MessageTaker& taker) override {
    return ReceiveBy(std::move(tensor), from, tag, &taker);
  }

  void SetTimeout(absl::Duration timeout) override { engine_->SetTimeout(timeout); }
  absl::Status status() const override { return engine_->status(); }
  void Abort(absl::string_view reason) override {
    engine_->Break(absl::AbortedError(
        absl::StrCat("group ", name(), ", rank ", rank(), ": aborted: ", reason)));
  }

 private:
  WorkOr ReceiveBy(at::Tensor tensor, int from, absl::string_view tag, MessageTaker* taker) {
    ASSIGN_OR_RETURN(auto message, Message("receive", std::move(tensor), from, tag));
    message->taker = taker;
    RETURN_IF_ERROR(engine_->Receive(message));
    return std::make_unique<SocketWork>(engine_, std::move(message));
  }

  absl::Status NoCollectives(absl::string_view op) const {
    return absl::UnimplementedError(
        absl::StrCat("group ", name(), ": ", op, ": this group supports messages only"));
  }

  absl::StatusOr<std::shared_ptr<SocketMessage>> Message(absl::string_view op, at::Tensor tensor,
                                                         int peer, absl::string_view tag) const {
    auto message = std::make_shared<SocketMessage>();
    message->what.op = std::string(op);
    message->what.tag = std::string(tag);
    message->what.peer = peer;
    const std::string what = DescribeOperation(name(), rank(), size(), message->what);
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    if (peer < 0 || peer >= size() || peer == rank()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": no such peer"));
    }
    message->what.bytes = SizeOf(tensor);
    message->data = DataOf(tensor);
    message->link = peer;
    message->tensors = {std::move(tensor)};
    return message;
  }

  const std::shared_ptr<SocketEngine> engine_;
  const char* const transport_;
};

absl::StatusOr<std::shared_ptr<SocketEngine>> Join(const GroupOptions& options,
                                                   const LinkPlan* plan) {
  const absl::Time deadline = absl::Now() + options.timeout;
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  std::vector<SocketLink> links;
  if (plan == nullptr) {
    ASSIGN_OR_RETURN(auto store, StoreConnection::Open(options.rendezvous, deadline, cancelled));
    ASSIGN_OR_RETURN(std::vector<host::FileDescriptor> sockets,
                     ConnectLocalStreams(options.rank, options.size, *store, deadline, cancelled));
    for (host::FileDescriptor& socket : sockets) links.emplace_back(std::move(socket));
  } else {
    ASSIGN_OR_RETURN(links, ConnectLinks(options, *plan, /*lane=*/"", deadline, cancelled));
  }
  return SocketEngine::Create(options.name, options.rank, options.size, options.timeout,
                              std::move(links));
}

// `plan`: null for sockets of the host.
absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(const GroupOptions& options,
                                                     const LinkPlan* plan) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  absl::StatusOr<std::shared_ptr<SocketEngine>> engine = Join(options, plan);
  if (!engine.ok()) return RendezvousError(options, engine.status());
  const char* const transport = plan == nullptr                    ? "local_socket"
                                : (*engine)->has_encrypted_links() ? "tls"
                                                                   : "socket";
  return std::make_unique<SocketGroup>(*std::move(engine), transport);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketGroup(const GroupOptions& options,
                                                                const LinkPlan& plan) {
  return Create(options, &plan);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateLocalSocketGroup(const GroupOptions& options) {
  return Create(options, /*plan=*/nullptr);
}

}  // namespace tandem::comm
