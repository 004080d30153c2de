#include "common/comm/device_memory_group.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/choose_group.h"
#include "common/comm/link_facts.h"
#include "common/comm/operation.h"
#include "common/comm/single_rank_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// An offer's wire format: the size of its handle, then the handle.
constexpr int64_t kOfferBytes = kMaxHandleBytes + static_cast<int64_t>(sizeof(int64_t));

at::Tensor MakeOffer(const std::string& handle) {
  at::Tensor out = at::empty({kOfferBytes}, at::kByte);
  auto* const bytes = static_cast<char*>(out.data_ptr());
  const auto size = static_cast<int64_t>(handle.size());
  std::memcpy(bytes, &size, sizeof(size));
  std::memcpy(bytes + sizeof(size), handle.data(), handle.size());
  return out;
}

absl::StatusOr<std::string> HandleOf(const at::Tensor& offer) {
  const auto* const bytes = static_cast<const char*>(offer.const_data_ptr());
  int64_t size = 0;
  std::memcpy(&size, bytes, sizeof(size));
  if (size < 0 || size > kMaxHandleBytes) {
    return absl::InternalError(absl::StrCat("an offer of a handle of ", size, " bytes"));
  }
  return std::string(bytes + sizeof(size), static_cast<size_t>(size));
}

// A pending transfer: bytes that this rank offered, or offered bytes that it must take.
struct Transfer {
  Operation what;
  at::Tensor tensor;
  SharedBytes offered;                       // of who sends
  at::Tensor offer;                          // of who receives, and from whom
  std::vector<std::unique_ptr<Work>> works;  // messages under way
  bool done = false;
  absl::Status status;  // once done
};

// Shared with the operations, which may outlive the group. Only the group's thread uses it, except
// for Abort(), SetTimeout() and status().
class Ranks {
 public:
  Ranks(const GroupOptions& options, std::unique_ptr<DeviceSharing> sharing,
        std::unique_ptr<ProcessGroup> offers, std::unique_ptr<ProcessGroup> answers)
      : name(options.name),
        rank(options.rank),
        size(options.size),
        timeout_(options.timeout),
        sharing_(std::move(sharing)),
        offers_(std::move(offers)),
        answers_(std::move(answers)),
        incoming_(static_cast<size_t>(options.size)) {}

  const std::string name;
  const int rank;
  const int size;

  std::string Describe(const Operation& what) const {
    return DescribeOperation(name, rank, size, what);
  }

  absl::Status Offer(const std::shared_ptr<Transfer>& transfer, const std::vector<int>& peers) {
    RETURN_IF_ERROR(Begin(*transfer));
    ASSIGN_OR_RETURN(transfer->offered, sharing_->Offer(transfer->tensor));
    const at::Tensor offer = MakeOffer(transfer->offered.handle);
    for (const int peer : peers) {
      ASSIGN_OR_RETURN(auto told, offers_->Send(offer, peer, transfer->what.tag));
      ASSIGN_OR_RETURN(auto taken,
                       answers_->Receive(at::empty({1}, at::kByte), peer, transfer->what.tag));
      transfer->works.push_back(std::move(told));
      transfer->works.push_back(std::move(taken));
    }
    return absl::OkStatus();
  }

  absl::Status Expect(const std::shared_ptr<Transfer>& transfer, int from) {
    RETURN_IF_ERROR(Begin(*transfer));
    transfer->offer = at::empty({kOfferBytes}, at::kByte);
    ASSIGN_OR_RETURN(auto told, offers_->Receive(transfer->offer, from, transfer->what.tag));
    transfer->works.push_back(std::move(told));
    incoming_[from].push_back(transfer);
    return absl::OkStatus();
  }

  // Takes a peer's offers in the order in which it made them: it expects the replies in that order.
  absl::Status Finish(Transfer& transfer) {
    if (transfer.offer.defined()) {
      auto& queue = incoming_[transfer.what.peer];
      while (!transfer.done && !queue.empty()) {
        const std::shared_ptr<Transfer> first = queue.front();
        queue.pop_front();
        Complete(*first, Take(*first));
      }
    }
    if (!transfer.done) Complete(transfer, WaitForAll(transfer));
    return transfer.status;
  }

  absl::Status Barrier(absl::string_view tag) { return offers_->Barrier(tag); }

  void SetTimeout(absl::Duration timeout) {
    offers_->SetTimeout(timeout);
    answers_->SetTimeout(timeout);
    absl::MutexLock lock(&mu_);
    timeout_ = timeout;
  }

  absl::Status status() const {
    {
      absl::MutexLock lock(&mu_);
      RETURN_IF_ERROR(broken_);
    }
    RETURN_IF_ERROR(offers_->status());
    return answers_->status();
  }

  void Abort(absl::string_view reason) {
    offers_->Abort(reason);
    answers_->Abort(reason);
  }

 private:
  absl::Status Begin(Transfer& transfer) {
    if (const absl::Status broken = status(); !broken.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the group is broken; create a new one; cause: ", broken.message()));
    }
    absl::MutexLock lock(&mu_);
    transfer.what.timeout = timeout_;
    transfer.what.deadline = absl::Now() + timeout_;
    return absl::OkStatus();
  }

  static absl::Status WaitForAll(Transfer& transfer) {
    absl::Status status;
    for (auto& work : transfer.works) status.Update(work->Wait());
    transfer.works.clear();
    return status;
  }

  absl::Status Take(Transfer& transfer) {
    RETURN_IF_ERROR(WaitForAll(transfer));
    ASSIGN_OR_RETURN(const std::string handle, HandleOf(transfer.offer));
    RETURN_IF_ERROR(sharing_->Take(handle, transfer.tensor, transfer.what.deadline))
        << Describe(transfer.what);
    ASSIGN_OR_RETURN(auto answer, answers_->Send(at::empty({1}, at::kByte), transfer.what.peer,
                                                 transfer.what.tag));
    return answer->Wait();
  }

  void Complete(Transfer& transfer, absl::Status status) {
    transfer.done = true;
    // Until now a peer could still be copying from the bytes.
    transfer.offered.holder = nullptr;
    transfer.status = status;
    if (status.ok()) return;
    {
      absl::MutexLock lock(&mu_);
      if (broken_.ok()) broken_ = status;
    }
    Abort(status.message());
  }

  mutable absl::Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  const std::unique_ptr<DeviceSharing> sharing_;
  // Two groups: in one, a pair's offers and its replies to the opposite offers would mix.
  const std::unique_ptr<ProcessGroup> offers_;
  const std::unique_ptr<ProcessGroup> answers_;
  std::vector<std::deque<std::shared_ptr<Transfer>>> incoming_;  // by peer
};

class DeviceMemoryWork : public Work {
 public:
  DeviceMemoryWork(std::shared_ptr<Ranks> ranks, std::shared_ptr<Transfer> transfer)
      : ranks_(std::move(ranks)), transfer_(std::move(transfer)) {}
  absl::Status Wait() override { return ranks_->Finish(*transfer_); }
  bool IsCompleted() override { return transfer_->done; }

 private:
  const std::shared_ptr<Ranks> ranks_;
  const std::shared_ptr<Transfer> transfer_;
};

class DeviceMemoryGroup : public ProcessGroup, public KnowsTransport {
 public:
  explicit DeviceMemoryGroup(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}

  const std::string& name() const override { return ranks_->name; }
  int rank() const override { return ranks_->rank; }
  int size() const override { return ranks_->size; }
  const char* transport() const override { return "cuda_ipc"; }

  WorkOr AllGather(at::Tensor, at::Tensor, absl::string_view) override {
    return None("all_gather");
  }
  WorkOr ReduceScatter(at::Tensor, at::Tensor, absl::string_view) override {
    return None("reduce_scatter");
  }
  WorkOr AllToAll(at::Tensor, at::Tensor, absl::string_view) override { return None("all_to_all"); }
  WorkOr AllReduce(at::Tensor, ReduceOp, absl::string_view) override { return None("all_reduce"); }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    if (root != rank()) return Start("broadcast", tensor, root, {}, tag);
    std::vector<int> others;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) others.push_back(peer);
    }
    return Start("broadcast", tensor, root, others, tag);
  }
  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    return Start("send", tensor, to, {to}, tag);
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    return Start("receive", tensor, from, {}, tag);
  }
  absl::Status Barrier(absl::string_view tag) override { return ranks_->Barrier(tag); }

  void SetTimeout(absl::Duration timeout) override { ranks_->SetTimeout(timeout); }
  absl::Status status() const override { return ranks_->status(); }
  void Abort(absl::string_view reason) override { ranks_->Abort(reason); }

 private:
  absl::Status None(absl::string_view op) const {
    return absl::UnimplementedError(absl::StrCat(
        "group ", name(), ": ", op, " is not available in memory of one device; use NCCL"));
  }

  // An offer to `to`, or, where that is nobody, bytes from `peer`.
  WorkOr Start(const char* op, const at::Tensor& tensor, int peer, const std::vector<int>& to,
               absl::string_view tag) {
    auto transfer = std::make_shared<Transfer>();
    transfer->what.op = op;
    transfer->what.tag = std::string(tag);
    transfer->what.bytes = tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
    transfer->what.peer = peer;
    transfer->tensor = tensor;
    const std::string what = ranks_->Describe(transfer->what);
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    if (peer < 0 || peer >= size()) return absl::InvalidArgumentError(what + ": no such rank");
    const bool to_itself = peer == rank() && std::string(op) != "broadcast";
    if (to_itself) return absl::InvalidArgumentError(what + ": a rank cannot send to itself");
    RETURN_IF_ERROR(to.empty() ? ranks_->Expect(transfer, peer) : ranks_->Offer(transfer, to))
        << what;
    return std::make_unique<DeviceMemoryWork>(ranks_, std::move(transfer));
  }

  const std::shared_ptr<Ranks> ranks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateDeviceMemoryGroup(
    const GroupOptions& options, std::unique_ptr<DeviceSharing> sharing) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateSingleRankGroup(options);
  GroupOptions part = options;
  part.rendezvous.prefix = absl::StrCat(options.rendezvous.prefix, "/offers");
  ASSIGN_OR_RETURN(auto offers, CreateSharedMemoryGroup(part));
  part.rendezvous.prefix = absl::StrCat(options.rendezvous.prefix, "/answers");
  ASSIGN_OR_RETURN(auto answers, CreateSharedMemoryGroup(part));
  return std::make_unique<DeviceMemoryGroup>(
      std::make_shared<Ranks>(options, std::move(sharing), std::move(offers), std::move(answers)));
}

}  // namespace tandem::comm
