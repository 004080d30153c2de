// Rejects enum values without a name. A proto3 enum field takes any number, and an unknown one
// would fall through to whatever the code does by default.
//
//   // INVALID_ARGUMENT "begun[0].finish_reason: ...".
//   RETURN_IF_ERROR(rpc::CheckEnums(request));
//   RETURN_IF_ERROR(rpc::CheckEnums(sample, "samples[3]"));
//   RETURN_IF_ERROR(rpc::CheckAnswerEnums(response));    // INTERNAL: another version responded
//
// Check every request with an enum where it arrives, and every response with one where it is read.
#ifndef TANDEM_COMMON_RPC_ENUM_CHECK_H_
#define TANDEM_COMMON_RPC_ENUM_CHECK_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

// INVALID_ARGUMENT with a BadField that names, below `place`, the first enum field of the message
// or its submessages whose number has no name. Visits messages and enums only, so lists of numbers
// cost nothing. Thread-safe.
absl::Status CheckEnums(const google::protobuf::Message& message, absl::string_view place = "");

// Does the same for a response; the error is INTERNAL.
absl::Status CheckAnswerEnums(const google::protobuf::Message& response);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_ENUM_CHECK_H_
