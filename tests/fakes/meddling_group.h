// MeddlingGroup: a process group that lets a test do as it likes with what this rank sends.
//
//   MeddlingGroup group(std::move(real), [](absl::string_view tag, at::Tensor bytes) {
//     return std::vector<at::Tensor>{bytes, bytes};                    // twice
//   });
#ifndef TANDEM_TESTS_FAKES_MEDDLING_GROUP_H_
#define TANDEM_TESTS_FAKES_MEDDLING_GROUP_H_

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/process_group.h"
#include "common/status/status_macros.h"

namespace tandem::testing {

// What is sent instead of a tensor, which is not to be changed: none, or several one after another.
using Meddle = std::function<std::vector<at::Tensor>(absl::string_view tag, const at::Tensor&)>;

class MeddlingGroup : public comm::ProcessGroup {
 public:
  MeddlingGroup(std::unique_ptr<comm::ProcessGroup> group, Meddle meddle)
      : group_(std::move(group)), meddle_(std::move(meddle)) {}

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
    if (root != rank()) return group_->Broadcast(tensor, root, tag);
    return Instead(tensor, tag,
                   [&](const at::Tensor& t) { return group_->Broadcast(t, root, tag); });
  }
  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    return Instead(tensor, tag, [&](const at::Tensor& t) { return group_->Send(t, to, tag); });
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) override {
    return group_->Receive(tensor, from, tag);
  }
  absl::Status Barrier(absl::string_view tag) override { return group_->Barrier(tag); }
  void SetTimeout(absl::Duration timeout) override { group_->SetTimeout(timeout); }
  absl::Status status() const override { return group_->status(); }
  void Abort(absl::string_view reason) override { group_->Abort(reason); }

 private:
  struct Nothing : comm::Work {
    absl::Status Wait() override { return absl::OkStatus(); }
    bool IsCompleted() override { return true; }
  };

  // The first is waited for; nobody may ever ask for the others.
  template <typename Issue>
  WorkOr Instead(const at::Tensor& tensor, absl::string_view tag, const Issue& issue) {
    std::unique_ptr<comm::Work> first;
    for (const at::Tensor& other : meddle_(tag, tensor)) {
      ASSIGN_OR_RETURN(auto work, issue(other));
      if (first == nullptr)
        first = std::move(work);
      else
        others_.push_back(std::move(work));
    }
    if (first == nullptr) first = std::make_unique<Nothing>();
    return first;
  }

  const std::unique_ptr<comm::ProcessGroup> group_;
  const Meddle meddle_;
  std::vector<std::unique_ptr<comm::Work>> others_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_MEDDLING_GROUP_H_
