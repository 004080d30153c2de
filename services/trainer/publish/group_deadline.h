// GroupDeadline: during an update, limits waits in the trainer's own group to the update's deadline
// plus kReportGrace; the group's own timeout may be much longer.
//
//   GroupDeadline limit(&world, collective_timeout);
//   limit.Begin(deadline);
//   limit.Apply();                            // before each operation: sets the remaining time
//   ASSIGN_OR_RETURN(auto work, world.Send(order, /*to=*/1, "order"));
//   limit.End();                              // restores the group's own timeout
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_DEADLINE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_DEADLINE_H_

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// The other ranks end an attempt at its deadline and report after that.
inline constexpr absl::Duration kReportGrace = absl::Seconds(2);

// Used by the group's collective thread. `group` is null if the rank is alone.
class GroupDeadline {
 public:
  GroupDeadline(comm::ProcessGroup* group, absl::Duration otherwise)
      : group_(group), otherwise_(otherwise) {}

  void Begin(absl::Time deadline) { deadline_ = deadline; }
  void Apply() {
    if (group_ == nullptr || deadline_ == absl::InfiniteFuture()) return;
    group_->SetTimeout(std::max(deadline_ - absl::Now(), absl::ZeroDuration()) + kReportGrace);
  }
  void End() {
    deadline_ = absl::InfiniteFuture();
    if (group_ != nullptr) group_->SetTimeout(otherwise_);
  }

 private:
  comm::ProcessGroup* const group_;
  const absl::Duration otherwise_;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_DEADLINE_H_
