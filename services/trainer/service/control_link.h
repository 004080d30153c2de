// ControlLink: the connection between the leader and one other rank, over sockets of just these two:
// the host's own, or between hosts TCP, or TLS if links between hosts are encrypted. Each pair has its
// own group, so that an error names the rank it comes from and the links to the others keep working
// for their reports.
//
// Threads: the collective thread of its rank. Errors are the group's: UNAVAILABLE as soon as the
// peer's process has ended, DEADLINE_EXCEEDED after the timeout.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_CONTROL_LINK_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_CONTROL_LINK_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "services/trainer/service/rank_command.h"

namespace tandem::trainer {

class ControlLink {
 public:
  // Joins leader and rank `follower`; `rank` is the caller's. Returns when both have joined, or
  // with CANCELLED once `cancel`, which may be null, is notified.
  static absl::StatusOr<std::unique_ptr<ControlLink>> Join(
      const comm::Rendezvous& rendezvous, int rank, int follower, absl::Duration timeout,
      const absl::Notification* cancel = nullptr);

  absl::Status SendCommand(const RankCommand& command);
  absl::StatusOr<RankCommand> ReceiveCommand();
  absl::Status SendResult(const RankResult& result);
  absl::StatusOr<RankResult> ReceiveResult();

  // Timeout of later sends and receives.
  void SetTimeout(absl::Duration timeout) { group_->SetTimeout(timeout); }

 private:
  struct Message {
    int64_t kind = 0;
    int64_t flags = 0;
    std::string bytes;
    telemetry::TraceContext trace;  // of a command
  };

  explicit ControlLink(std::unique_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}
  absl::Status Send(const Message& message, absl::string_view tag);
  absl::StatusOr<Message> Receive(absl::string_view tag);

  const std::unique_ptr<comm::ProcessGroup> group_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_CONTROL_LINK_H_
