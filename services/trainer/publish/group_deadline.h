// GroupDeadline: while an update lasts, what is waited for in the trainer's own group ends with the
// update's deadline, and kReportGrace; its collectives may take much longer otherwise.
//
//   GroupDeadline limit(&world, collective_timeout);
//   limit.Begin(deadline);
//   limit.Apply();  group.Send(...)           // before each operation: time has gone on
//   limit.End();                              // the group's own timeout again
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_DEADLINE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_DEADLINE_H_

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// The other ranks end an attempt at its deadline, and report then.
inline constexpr absl::Duration kReportGrace = absl::Seconds(2);

// Used by the group's collective thread. `group` may be null, where the rank is alone.
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
