// ForwardingGroup: a process group that passes every operation on to another, for tests that stand in
// between: they override what they change or look at.
#ifndef TANDEM_TESTS_FAKES_FORWARDING_GROUP_H_
#define TANDEM_TESTS_FAKES_FORWARDING_GROUP_H_

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>

#include "common/comm/process_group.h"

namespace tandem::testing {

class ForwardingGroup : public comm::ProcessGroup {
 public:
  explicit ForwardingGroup(std::unique_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    return group_->AllGather(full, shard, tag);
  }
  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    return group_->ReduceScatter(shard, full, tag);
  }
  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    return group_->AllToAll(out, in, tag);
  }
  WorkOr AllReduce(at::Tensor tensor, comm::ReduceOp op, absl::string_view tag) override {
    return group_->AllReduce(tensor, op, tag);
  }
  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    return group_->Broadcast(tensor, root, tag);
  }
  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    return group_->Send(tensor, to, tag);
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    return group_->Receive(tensor, from, tag);
  }
  absl::Status Barrier(absl::string_view tag) override { return group_->Barrier(tag); }
  void SetTimeout(absl::Duration timeout) override { group_->SetTimeout(timeout); }
  absl::Status status() const override { return group_->status(); }
  void Abort(absl::string_view reason) override { group_->Abort(reason); }

 private:
  const std::unique_ptr<comm::ProcessGroup> group_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FORWARDING_GROUP_H_
