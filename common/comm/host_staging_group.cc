#include "common/comm/host_staging_group.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/check_tensors.h"
#include "common/comm/link_facts.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// A message whose bytes lie in page-locked memory while they travel.
class StagedWork : public Work, public KnowsCompletion {
 public:
  // `landing`: where received bytes go; undefined for sent ones.
  StagedWork(std::unique_ptr<Work> work, std::shared_ptr<device::Device> device, at::Tensor staged,
             at::Tensor landing)
      : work_(std::move(work)),
        device_(std::move(device)),
        staged_(std::move(staged)),
        landing_(std::move(landing)) {}

  absl::Status Wait() override {
    if (is_done_) return status_;
    status_ = work_->Wait();
    is_done_ = true;
    completed_at_ = CompletedAt(*work_);
    if (status_.ok() && landing_.defined()) status_ = device_->Transfer(staged_, landing_);
    return status_;
  }
  bool IsCompleted() override { return is_done_; }
  std::chrono::steady_clock::time_point completed_at() const override { return completed_at_; }

 private:
  const std::unique_ptr<Work> work_;
  const std::shared_ptr<device::Device> device_;
  const at::Tensor staged_, landing_;
  bool is_done_ = false;
  absl::Status status_;
  std::chrono::steady_clock::time_point completed_at_;
};

class HostStagingGroup : public ProcessGroup, public KnowsTransport {
 public:
  HostStagingGroup(std::unique_ptr<ProcessGroup> group, std::shared_ptr<device::Device> device)
      : group_(std::move(group)), device_(std::move(device)), transport_(TransportOf(*group_)) {}

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const char* transport() const override { return transport_.c_str(); }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckOnHost(full, "all_gather", tag));
    return group_->AllGather(std::move(full), std::move(shard), tag);
  }
  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckOnHost(full, "reduce_scatter", tag));
    return group_->ReduceScatter(std::move(shard), std::move(full), tag);
  }
  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckOnHost(in, "all_to_all", tag));
    return group_->AllToAll(std::move(out), std::move(in), tag);
  }
  WorkOr AllReduce(at::Tensor tensor, ReduceOp op, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckOnHost(tensor, "all_reduce", tag));
    return group_->AllReduce(std::move(tensor), op, tag);
  }

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    const auto issue = [&](at::Tensor bytes) {
      return group_->Broadcast(std::move(bytes), root, tag);
    };
    return root == rank() ? Leave(tensor, "broadcast", tag, issue)
                          : Land(tensor, "broadcast", tag, issue);
  }
  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    return Leave(tensor, "send", tag,
                 [&](at::Tensor bytes) { return group_->Send(std::move(bytes), to, tag); });
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    return Land(tensor, "receive", tag,
                [&](at::Tensor bytes) { return group_->Receive(std::move(bytes), from, tag); });
  }

  absl::Status Barrier(absl::string_view tag) override { return group_->Barrier(tag); }
  void SetTimeout(absl::Duration timeout) override { group_->SetTimeout(timeout); }
  absl::Status status() const override { return group_->status(); }
  void Abort(absl::string_view reason) override { group_->Abort(reason); }

 private:
  std::string Describe(const char* op, absl::string_view tag) const {
    return absl::StrCat("group ", name(), ": ", op, " '", tag, "'");
  }

  absl::Status CheckOnHost(const at::Tensor& tensor, const char* op, absl::string_view tag) const {
    if (tensor.is_cpu()) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat(Describe(op, tag), " takes tensors in host memory only; use NCCL"));
  }

  // A tensor of the same type and size in page-locked memory.
  absl::StatusOr<at::Tensor> Staged(const at::Tensor& tensor, const char* op,
                                    absl::string_view tag) const {
    RETURN_IF_ERROR(CheckTensor(tensor)) << Describe(op, tag);
    ASSIGN_OR_RETURN(const at::Tensor bytes,
                     device_->HostBuffer(static_cast<int64_t>(tensor.nbytes())));
    return bytes.view(tensor.scalar_type()).view(tensor.sizes());
  }

  template <typename Issue>
  WorkOr Leave(const at::Tensor& tensor, const char* op, absl::string_view tag,
               const Issue& issue) {
    if (tensor.is_cpu()) return issue(tensor);
    ASSIGN_OR_RETURN(at::Tensor staged, Staged(tensor, op, tag));
    RETURN_IF_ERROR(device_->Transfer(tensor, staged)) << Describe(op, tag);
    ASSIGN_OR_RETURN(auto work, issue(staged));
    return std::make_unique<StagedWork>(std::move(work), device_, std::move(staged), at::Tensor());
  }

  template <typename Issue>
  WorkOr Land(const at::Tensor& tensor, const char* op, absl::string_view tag, const Issue& issue) {
    if (tensor.is_cpu()) return issue(tensor);
    ASSIGN_OR_RETURN(at::Tensor staged, Staged(tensor, op, tag));
    ASSIGN_OR_RETURN(auto work, issue(staged));
    return std::make_unique<StagedWork>(std::move(work), device_, std::move(staged), tensor);
  }

  const std::unique_ptr<ProcessGroup> group_;
  const std::shared_ptr<device::Device> device_;
  const std::string transport_;
};

}  // namespace

std::unique_ptr<ProcessGroup> StageOnHost(std::unique_ptr<ProcessGroup> group,
                                          std::shared_ptr<device::Device> device) {
  return std::make_unique<HostStagingGroup>(std::move(group), std::move(device));
}

}  // namespace tandem::comm
