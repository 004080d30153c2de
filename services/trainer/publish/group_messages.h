// MessageLink: protocol buffers between two ranks of a process group, outside of collectives.
//
//   MessageLink link(&world, /*peer=*/1);            // there: MessageLink(&world, 0)
//   RETURN_IF_ERROR(link.Send(order, "publish order"));
//   const absl::Status status = link.Receive(report, "publish report");
//
// A message is a header (sequence number, size, digest), then its bytes. The header words are
// guarded, so a receiver detects a damaged message and still finds the next one. It skips
// duplicates.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_

#include <google/protobuf/message.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// Both ranks create one per group. Used by the group's collective thread; the group outlives it.
class MessageLink {
 public:
  MessageLink(comm::ProcessGroup* group, int peer) : group_(group), peer_(peer) {}

  // Both block until the message has been sent or received. Errors are those of the group, and
  // INTERNAL if the header is invalid: the ranks are then out of step. Receive() returns DATA_LOSS
  // if the message arrived damaged or out of order; later messages can still be received.
  absl::Status Send(const google::protobuf::Message& message, absl::string_view tag);
  absl::Status Receive(google::protobuf::Message& message, absl::string_view tag);

 private:
  comm::ProcessGroup* const group_;
  const int peer_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_
