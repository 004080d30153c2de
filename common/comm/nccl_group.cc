// ProcessGroup over one NCCL communicator.
//
// An operation is a kernel on the stream of the group's connection: Wait() makes the current stream
// wait for it and returns. NcclConnection has the deadlines and the abort.
#include "common/comm/nccl_group.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/link_facts.h"
#include "common/comm/nccl_connection.h"
#include "common/comm/nccl_rendezvous.h"
#include "common/comm/run_with_deadline.h"
#include "common/comm/single_rank_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kBarrierPause = absl::Microseconds(200);

// Issues the calls of `body` as one operation. Returns the first error of a call, or the group's
// result.
template <typename Body>
int InOneGroup(NcclApi& api, Body body) {
  const int started = api.GroupStart();
  if (started != NcclApi::kSuccess) return started;
  const int result = body();
  // Also after an error, or this thread's next operations would belong to the group.
  const int ended = api.GroupEnd();
  return result != NcclApi::kSuccess && result != NcclApi::kInProgress ? result : ended;
}

class NcclWork : public Work {
 public:
  NcclWork(std::shared_ptr<NcclConnection> connection,
           std::shared_ptr<NcclConnection::Operation> operation)
      : connection_(std::move(connection)), operation_(std::move(operation)) {}

  absl::Status Wait() override { return connection_->Wait(*operation_); }
  bool IsCompleted() override { return connection_->IsCompleted(*operation_); }

 private:
  const std::shared_ptr<NcclConnection> connection_;
  const std::shared_ptr<NcclConnection::Operation> operation_;
};

class NcclGroup : public ProcessGroup, public KnowsTransport, public ReplaysInGraphs {
 public:
  NcclGroup(int rank, int size, std::shared_ptr<NcclConnection> connection)
      : rank_(rank), size_(size), connection_(std::move(connection)) {}
  ~NcclGroup() override { connection_->Close(); }

  const std::string& name() const override { return connection_->name(); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* transport() const override { return "nccl"; }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    const std::string what = Describe("all_gather", tag, full, "");
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << what;
    return Start(what, {full, shard},
                 [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
                   return api.AllGather(shard.const_data_ptr(), full.mutable_data_ptr(),
                                        shard.nbytes(), comm, stream);
                 });
  }

  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    const std::string what = Describe("reduce_scatter", tag, full, "");
    RETURN_IF_ERROR(CheckShards(full, shard, size())) << what;
    return Start(what, {full, shard},
                 [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
                   return api.ReduceScatter(full.const_data_ptr(), shard.mutable_data_ptr(),
                                            shard.numel(), shard.scalar_type(), comm, stream);
                 });
  }

  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    const std::string what = Describe("all_to_all", tag, in, "");
    RETURN_IF_ERROR(CheckSlices(out, in, size())) << what;
    return Start(what, {out, in},
                 [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
                   const size_t slice = in.nbytes() / size();
                   const auto* from = static_cast<const char*>(in.const_data_ptr());
                   auto* to = static_cast<char*>(out.mutable_data_ptr());
                   return InOneGroup(api, [&] {
                     int result = NcclApi::kSuccess;
                     for (int peer = 0; peer < size() && result == NcclApi::kSuccess; ++peer) {
                       result = api.Send(from + peer * slice, slice, peer, comm, stream);
                       if (result == NcclApi::kSuccess || result == NcclApi::kInProgress) {
                         result = api.Receive(to + peer * slice, slice, peer, comm, stream);
                       }
                       if (result == NcclApi::kInProgress) result = NcclApi::kSuccess;
                     }
                     return result;
                   });
                 });
  }

  WorkOr AllReduce(at::Tensor tensor, ReduceOp reduce, absl::string_view tag) override {
    const std::string what = Describe("all_reduce", tag, tensor, "");
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    return Start(what, {tensor},
                 [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
                   return api.AllReduce(tensor.mutable_data_ptr(), tensor.numel(),
                                        tensor.scalar_type(), reduce, comm, stream);
                 });
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    const std::string what = Describe("broadcast", tag, tensor, absl::StrCat(" from rank ", root));
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    RETURN_IF_ERROR(CheckRank(root)) << what;
    return Start(
        what, {tensor}, [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
          return api.Broadcast(tensor.mutable_data_ptr(), tensor.nbytes(), root, comm, stream);
        });
  }

  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    const std::string what = Describe("send", tag, tensor, absl::StrCat(" to rank ", to));
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    RETURN_IF_ERROR(CheckPeer(to)) << what;
    return Start(what, {tensor},
                 [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
                   return api.Send(tensor.const_data_ptr(), tensor.nbytes(), to, comm, stream);
                 });
  }

  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    const std::string what = Describe("receive", tag, tensor, absl::StrCat(" from rank ", from));
    RETURN_IF_ERROR(CheckTensor(tensor)) << what;
    RETURN_IF_ERROR(CheckPeer(from)) << what;
    return Start(
        what, {tensor}, [&](NcclApi& api, NcclCommunicator* comm, const device::Stream& stream) {
          return api.Receive(tensor.mutable_data_ptr(), tensor.nbytes(), from, comm, stream);
        });
  }

  absl::Status Barrier(absl::string_view tag) override {
    const at::Tensor flag =
        at::zeros({1}, at::device(connection_->api().device().device()).dtype(at::kInt));
    ASSIGN_OR_RETURN(auto work, AllReduce(flag, ReduceOp::kSum, tag));
    // The host has to wait here; Wait() would only make the stream wait.
    while (!work->IsCompleted()) absl::SleepFor(kBarrierPause);
    return connection_->status();
  }

  absl::Status WatchReplay(absl::string_view tag) override {
    return connection_->WatchQueued(
        absl::StrCat("group ", name(), ", rank ", rank(), " of ", size(), ": replay '", tag, "'"));
  }

  void SetTimeout(absl::Duration timeout) override { connection_->SetTimeout(timeout); }
  absl::Status status() const override { return connection_->Look(); }

  void Abort(absl::string_view reason) override {
    connection_
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

  WorkOr Start(const std::string& what, std::vector<at::Tensor> tensors,
               NcclConnection::Call call) {
    const c10::Device device = connection_->api().device().device();
    for (const at::Tensor& tensor : tensors) {
      if (tensor.device() == device) continue;
      return absl::InvalidArgumentError(absl::StrCat(what, ": expected a tensor on ", device.str(),
                                                     ", found one on ", tensor.device().str()));
    }
    ASSIGN_OR_RETURN(auto operation, connection_->Issue(what, std::move(tensors), call));
    return std::make_unique<NcclWork>(connection_, std::move(operation));
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<NcclConnection> connection_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroupOver(const GroupOptions& options,
                                                                  std::shared_ptr<NcclApi> api) {
  ASSIGN_OR_RETURN(NcclCommunicator* const comm, JoinCommunicator(options, api));
  try {
    return std::make_unique<NcclGroup>(
        options.rank, options.size,
        NcclConnection::Create(options.name, options.family, options.timeout, api, comm));
  } catch (const std::exception& error) {
    api->CommAbort(comm);
    return absl::UnavailableError(
        absl::StrCat("group ", options.name, ": no stream: ", FirstLine(error.what())));
  }
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  absl::StatusOr<std::shared_ptr<NcclApi>> api = CollectivesOfCurrentDevice();
  if (!api.ok()) {
    return absl::Status(api.status().code(),
                        absl::StrCat("group ", options.name, ": ", api.status().message()));
  }
  if (options.size == 1) return CreateSingleRankGroup(options);
  return CreateNcclGroupOver(options, *std::move(api));
}

}  // namespace tandem::comm
