// ProcessGroup over shared memory among ranks on one host. This file plans what each operation
// sends and receives; the engine moves it.
#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/choose_group.h"
#include "common/comm/engine_work.h"
#include "common/comm/link_facts.h"
#include "common/comm/local_links.h"
#include "common/comm/message_taker.h"
#include "common/comm/process_group.h"
#include "common/comm/reduce_kernels.h"
#include "common/comm/reduce_types.h"
#include "common/comm/shared_engine.h"
#include "common/comm/shared_message_group.h"
#include "common/comm/shared_notice.h"
#include "common/comm/shared_segment.h"
#include "common/comm/single_rank_group.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

using Stream = SharedOperation::Stream;

using SharedWork = EngineWork<SharedEngine, SharedOperation>;

class SharedMemoryGroup : public ProcessGroup, public TakingGroup, public KnowsTransport {
 public:
  explicit SharedMemoryGroup(std::shared_ptr<SharedEngine> engine) : engine_(std::move(engine)) {}

  ~SharedMemoryGroup() override {
    if (engine_->is_under_way()) Abort("the group was destroyed while operations were in flight");
    engine_->Leave();
  }

  const std::string& name() const override { return engine_->name(); }
  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  const char* transport() const override { return "shared_memory"; }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    auto op = Collective(CollectiveKind::kAllGather, tag, full);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << engine_->Describe(op->what);
    const int64_t bytes = SizeOf(shard);
    std::byte* const own = DataOf(full) + rank() * bytes;
    SharedTransfer transfer = NewTransfer();
    transfer.SendToAll(DataOf(shard), bytes);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) transfer.ReceiveFromAll(peer, DataOf(full) + peer * bytes, bytes);
    }
    // Here, not where the chunks move: the caller is at hand, and the shard in its cache.
    if (bytes > 0 && own != DataOf(shard))
      std::memcpy(own, DataOf(shard), static_cast<size_t>(bytes));
    return Start(std::move(op), {std::move(transfer)}, {full, shard});
  }

  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    auto op = Collective(CollectiveKind::kReduceScatter, tag, full);
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << engine_->Describe(op->what);
    ASSIGN_OR_RETURN(const ReduceType type, ToReduceType(full.scalar_type()));
    const int64_t bytes = SizeOf(shard);
    SharedTransfer transfer = NewTransfer();
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      transfer.SendToOne(peer, DataOf(full) + peer * bytes, bytes);
    }
    transfer.Reduce(ReduceKind::kSum, type, static_cast<int64_t>(full.element_size()),
                    DataOf(full) + rank() * bytes, DataOf(shard), bytes, /*to_all=*/false);
    return Start(std::move(op), {std::move(transfer)}, {shard, full});
  }

  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    auto op = Collective(CollectiveKind::kAllToAll, tag, in);
    RETURN_IF_ERROR(CheckSlices(out, in, size())) << engine_->Describe(op->what);
    const int64_t bytes = SizeOf(in) / size();
    SharedTransfer transfer = NewTransfer();
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() + size() - step) % size();
      transfer.SendToOne(to, DataOf(in) + to * bytes, bytes);
      transfer.ReceiveFromOne(from, DataOf(out) + from * bytes, bytes);
    }
    if (bytes > 0) {
      std::memcpy(DataOf(out) + rank() * bytes, DataOf(in) + rank() * bytes,
                  static_cast<size_t>(bytes));
    }
    return Start(std::move(op), {std::move(transfer)}, {out, in});
  }

  WorkOr AllReduce(at::Tensor tensor, ReduceOp reduce, absl::string_view tag) override {
    auto op = Collective(CollectiveKind::kAllReduce, tag, tensor);
    RETURN_IF_ERROR(CheckTensor(tensor)) << engine_->Describe(op->what);
    ASSIGN_OR_RETURN(const ReduceType type, ToReduceType(tensor.scalar_type()));
    op->notice.reduce = static_cast<int32_t>(reduce);
    const int64_t bytes = SizeOf(tensor);
    const int64_t element = static_cast<int64_t>(tensor.element_size());
    const ReduceKind kind = ToReduceKind(reduce);
    std::vector<SharedTransfer> phases;
    // Between two ranks, slices would move as many bytes, in two rounds instead of one.
    if (size() == 2 || bytes <= kSmallBytes) {
      // Everything to everyone, each computes all of it.
      phases.push_back(NewTransfer());
      phases[0].SendToAll(DataOf(tensor), bytes);
      phases[0].Reduce(kind, type, element, DataOf(tensor), DataOf(tensor), bytes, /*to_all=*/true);
    } else {
      phases = {ReduceSlices(tensor, kind, type), GatherSlices(tensor)};
    }
    return Start(std::move(op), std::move(phases), {tensor});
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    auto op = Collective(CollectiveKind::kBroadcast, tag, tensor, root);
    RETURN_IF_ERROR(CheckTensor(tensor)) << engine_->Describe(op->what);
    RETURN_IF_ERROR(CheckRank(root)) << engine_->Describe(op->what);
    SharedTransfer transfer = NewTransfer();
    if (rank() == root) {
      transfer.SendToAll(DataOf(tensor), SizeOf(tensor));
    } else {
      transfer.ReceiveFromAll(root, DataOf(tensor), SizeOf(tensor));
    }
    // The root does not wait for the receivers, and a receiver waits for nobody but the root.
    op->awaited_peers = rank() == root ? 0 : uint64_t{1} << root;
    return Start(std::move(op), {std::move(transfer)}, {tensor});
  }

  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    auto op = Message(Stream::kSend, tag, tensor, to);
    RETURN_IF_ERROR(CheckTensor(tensor)) << engine_->Describe(op->what);
    RETURN_IF_ERROR(CheckPeer(to)) << engine_->Describe(op->what);
    SharedTransfer transfer = NewTransfer();
    transfer.SendMessage(to, op->notice, DataOf(tensor), engine_->memory());
    return Start(std::move(op), {std::move(transfer)}, {tensor});
  }

  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    return ReceiveBy(std::move(tensor), from, tag, nullptr);
  }

  // A helper thread may move the message; a taker is called only on threads that issue operations
  // or wait for them.
  WorkOr ReceiveWith(at::Tensor tensor, int from, absl::string_view tag,
                     MessageTaker& taker) override {
    return ReceiveBy(std::move(tensor), from, tag, engine_->has_helper() ? nullptr : &taker);
  }

  WorkOr ReceiveBy(at::Tensor tensor, int from, absl::string_view tag, MessageTaker* taker) {
    auto op = Message(Stream::kReceive, tag, tensor, from);
    RETURN_IF_ERROR(CheckTensor(tensor)) << engine_->Describe(op->what);
    RETURN_IF_ERROR(CheckPeer(from)) << engine_->Describe(op->what);
    SharedTransfer transfer = NewTransfer();
    transfer.ReceiveMessage(from, DataOf(tensor), SizeOf(tensor), engine_->memory(), taker);
    return Start(std::move(op), {std::move(transfer)}, {tensor});
  }

  absl::Status Barrier(absl::string_view tag) override {
    auto op = Collective(CollectiveKind::kBarrier, tag, at::Tensor());
    RETURN_IF_ERROR(engine_->Issue(op, /*waited_for_at_once=*/true));
    return engine_->Wait(*op);
  }

  void SetTimeout(absl::Duration timeout) override { engine_->SetTimeout(timeout); }
  absl::Status status() const override { return engine_->status(); }

  void Abort(absl::string_view reason) override {
    engine_->Break(absl::AbortedError(
        absl::StrCat("group ", name(), ", rank ", rank(), ": aborted: ", reason)));
  }

 private:
  using OperationPtr = std::shared_ptr<SharedOperation>;

  // Up to this size, one round of everything to everyone is faster than two rounds of slices.
  static constexpr int64_t kSmallBytes = 32 << 10;

  SharedTransfer NewTransfer() { return SharedTransfer(engine_->segment(), rank(), size()); }

  OperationPtr Describe(const char* name, absl::string_view tag, const at::Tensor& tensor,
                        int peer) const {
    auto op = std::make_shared<SharedOperation>();
    op->what.op = name;
    op->what.tag = std::string(tag);
    op->what.bytes = tensor.defined() ? SizeOf(tensor) : 0;
    op->what.peer = peer;
    op->notice.bytes = op->what.bytes;
    op->notice.dtype = tensor.defined() ? static_cast<int32_t>(tensor.scalar_type())
                                        : static_cast<int32_t>(at::kByte);
    op->notice.SetTag(tag);
    return op;
  }

  OperationPtr Collective(CollectiveKind kind, absl::string_view tag, const at::Tensor& tensor,
                          int root = -1) const {
    OperationPtr op = Describe(CollectiveName(kind), tag, tensor, root);
    op->notice.kind = static_cast<int32_t>(kind);
    op->notice.root = root;
    op->awaited_peers = engine_->peers();
    return op;
  }

  OperationPtr Message(Stream stream, absl::string_view tag, const at::Tensor& tensor,
                       int peer) const {
    OperationPtr op = Describe(stream == Stream::kSend ? "send" : "receive", tag, tensor, peer);
    op->stream = stream;
    return op;
  }

  // A tensor cut into a slice for each rank, the last ones shorter or empty: where one begins.
  static int64_t SliceBegin(const at::Tensor& tensor, int rank, int size) {
    // A multiple of every element's size, so that no element is cut.
    constexpr int64_t kAlignment = 64;
    const int64_t slice = (SizeOf(tensor) / size + kAlignment) / kAlignment * kAlignment;
    return std::min(SizeOf(tensor), rank * slice);
  }

  SharedTransfer ReduceSlices(const at::Tensor& tensor, ReduceKind kind, ReduceType type) {
    SharedTransfer transfer = NewTransfer();
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const int64_t begin = SliceBegin(tensor, peer, size());
      transfer.SendToOne(peer, DataOf(tensor) + begin,
                         SliceBegin(tensor, peer + 1, size()) - begin);
    }
    const int64_t begin = SliceBegin(tensor, rank(), size());
    transfer.Reduce(kind, type, static_cast<int64_t>(tensor.element_size()), DataOf(tensor) + begin,
                    DataOf(tensor) + begin, SliceBegin(tensor, rank() + 1, size()) - begin,
                    /*to_all=*/false);
    return transfer;
  }

  SharedTransfer GatherSlices(const at::Tensor& tensor) {
    SharedTransfer transfer = NewTransfer();
    for (int peer = 0; peer < size(); ++peer) {
      const int64_t begin = SliceBegin(tensor, peer, size());
      const int64_t bytes = SliceBegin(tensor, peer + 1, size()) - begin;
      if (peer == rank()) {
        transfer.SendToAll(DataOf(tensor) + begin, bytes);
      } else {
        transfer.ReceiveFromAll(peer, DataOf(tensor) + begin, bytes);
      }
    }
    return transfer;
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

  WorkOr Start(OperationPtr op, std::vector<SharedTransfer> phases,
               std::vector<at::Tensor> tensors) {
    op->phases = std::move(phases);
    op->tensors = std::move(tensors);
    RETURN_IF_ERROR(engine_->Issue(op));
    return std::make_unique<SharedWork>(engine_, std::move(op));
  }

  const std::shared_ptr<SharedEngine> engine_;
};

absl::StatusOr<std::shared_ptr<SharedEngine>> Join(const GroupOptions& options, bool has_helper) {
  const absl::Time deadline = absl::Now() + options.timeout;
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  ASSIGN_OR_RETURN(auto store, StoreConnection::Open(options.rendezvous, deadline, cancelled));
  ASSIGN_OR_RETURN(auto links,
                   LocalLinks::Connect(options.rank, options.size, *store, deadline, cancelled));
  host::FileDescriptor file;
  if (options.rank == 0) {
    ASSIGN_OR_RETURN(file, SharedSegment::CreateFile(options.size));
    RETURN_IF_ERROR(links->SendFile(file, deadline, cancelled));
  } else {
    ASSIGN_OR_RETURN(file, links->ReceiveFile(0, deadline, cancelled));
  }
  ASSIGN_OR_RETURN(auto segment, SharedSegment::Map(file, options.size));
  auto engine =
      std::make_shared<SharedEngine>(options.name, options.rank, options.size, options.timeout,
                                     std::move(segment), std::move(links), has_helper);
  RETURN_IF_ERROR(engine->Meet(deadline, cancelled));
  return engine;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(const GroupOptions& options, bool has_helper) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  if (options.size > kMaxLocalRanks) {
    return absl::InvalidArgumentError(absl::StrCat("group ", options.name, ": ", options.size,
                                                   " ranks, but shared memory takes at most ",
                                                   kMaxLocalRanks));
  }
  absl::StatusOr<std::shared_ptr<SharedEngine>> engine = Join(options, has_helper);
  if (!engine.ok()) return RendezvousError(options, engine.status());
  return std::make_unique<SharedMemoryGroup>(*std::move(engine));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSharedMemoryGroup(const GroupOptions& options) {
  return Create(options, /*has_helper=*/true);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSharedMessageGroup(
    const GroupOptions& options) {
  return Create(options, /*has_helper=*/false);
}

}  // namespace tandem::comm
