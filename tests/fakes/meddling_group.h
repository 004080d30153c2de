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

#include "common/status/status_macros.h"
#include "tests/fakes/forwarding_group.h"

namespace tandem::testing {

// What is sent instead of a tensor, which is not to be changed: none, or several one after another.
using Meddle = std::function<std::vector<at::Tensor>(absl::string_view tag, const at::Tensor&)>;

class MeddlingGroup : public ForwardingGroup {
 public:
  MeddlingGroup(std::unique_ptr<comm::ProcessGroup> group, Meddle meddle)
      : ForwardingGroup(std::move(group)), meddle_(std::move(meddle)) {}

  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    const auto issue = [&](const at::Tensor& t) {
      return ForwardingGroup::Broadcast(t, root, tag);
    };
    return root == rank() ? Instead(tensor, tag, issue) : issue(tensor);
  }
  WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) override {
    return Instead(tensor, tag,
                   [&](const at::Tensor& t) { return ForwardingGroup::Send(t, to, tag); });
  }

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

  const Meddle meddle_;
  std::vector<std::unique_ptr<comm::Work>> others_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_MEDDLING_GROUP_H_
