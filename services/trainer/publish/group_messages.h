// Protocol buffers between two ranks of a process group, for what is said beside collectives.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// Blocks until it has been sent, or received. Errors are those of the group; INTERNAL for bytes
// that are no such message.
absl::Status SendMessage(comm::ProcessGroup& group, int to,
                         const google::protobuf::Message& message, absl::string_view tag);
absl::Status ReceiveMessage(comm::ProcessGroup& group, int from, google::protobuf::Message& message,
                            absl::string_view tag);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_GROUP_MESSAGES_H_
