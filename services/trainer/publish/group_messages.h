// MessageLink: protocol buffers between two ranks of a process group, for what is said beside
// collectives.
//
//   MessageLink link(&world, /*peer=*/1);            // there: MessageLink(&world, 0)
//   RETURN_IF_ERROR(link.Send(order, "publish order"));
//   const absl::Status status = link.Receive(report, "publish report");
//
// A message is a number in order, a size and a digest, then its bytes. The former are guarded
// words, so a message whose bytes were changed on their way is known, and the next one is found
// after it. One that comes again is passed over.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_

#include <google/protobuf/message.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// Both ranks make theirs once for a group. Used by the group's collective thread; the group
// outlives it.
class MessageLink {
 public:
  MessageLink(comm::ProcessGroup* group, int peer) : group_(group), peer_(peer) {}

  // Both block until it has been sent, or received. Errors are those of the group, and INTERNAL
  // where the words before a message are none: the ranks have lost each other then. DATA_LOSS, of
  // Receive(): the message arrived damaged, or was not the next one; what was sent after it still
  // can be received.
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
