#include "common/comm/single_rank_group.h"

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/check_tensors.h"

namespace tandem::comm {
namespace {

class DoneWork : public Work {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
  bool IsCompleted() override { return true; }
};

class SingleRankGroup : public ProcessGroup {
 public:
  explicit SingleRankGroup(const GroupOptions& options) : name_(options.name) {}

  const std::string& name() const override { return name_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckShards(full, shard, 1)) << name_ << ": all_gather '" << tag << "'";
    return Copy(full, shard);
  }
  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckShards(full, shard, 1)) << name_ << ": reduce_scatter '" << tag << "'";
    return Copy(shard, full);
  }
  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    RETURN_IF_ERROR(CheckSlices(out, in, 1)) << name_ << ": all_to_all '" << tag << "'";
    return Copy(out, in);
  }
  WorkOr AllReduce(at::Tensor, ReduceOp, absl::string_view) override { return Done(); }
  WorkOr Broadcast(at::Tensor, int root, absl::string_view tag) override {
    if (root != 0) return NoPeer("broadcast", root, tag);
    return Done();
  }
  WorkOr Send(at::Tensor, int to, absl::string_view tag) override {
    return NoPeer("send", to, tag);
  }
  WorkOr Receive(at::Tensor, int from, absl::string_view tag) override {
    return NoPeer("receive", from, tag);
  }
  absl::Status Barrier(absl::string_view) override { return Done().status(); }
  void SetTimeout(absl::Duration) override {}

  absl::Status status() const override {
    absl::MutexLock lock(&mu_);
    return broken_;
  }
  void Abort(absl::string_view reason) override {
    absl::MutexLock lock(&mu_);
    if (broken_.ok())
      broken_ = absl::AbortedError(absl::StrCat("group ", name_, ": aborted: ", reason));
  }

 private:
  WorkOr Done() const {
    absl::MutexLock lock(&mu_);
    if (!broken_.ok()) return absl::FailedPreconditionError(broken_.message());
    return std::make_unique<DoneWork>();
  }
  WorkOr Copy(at::Tensor& to, const at::Tensor& from) const {
    if (to.data_ptr() != from.data_ptr()) to.copy_(from.view(to.sizes()));
    return Done();
  }
  WorkOr NoPeer(absl::string_view op, int peer, absl::string_view tag) const {
    return absl::InvalidArgumentError(absl::StrCat("group ", name_, ": ", op, " '", tag,
                                                   "': no rank ", peer, " in a group of 1"));
  }

  const std::string name_;
  mutable absl::Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<ProcessGroup> CreateSingleRankGroup(const GroupOptions& options) {
  return std::make_unique<SingleRankGroup>(options);
}

}  // namespace tandem::comm
