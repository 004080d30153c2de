// Enum values that nobody has named. In proto3 a field takes any number: one that this program does
// not know would pass for whatever the code does otherwise.
//
//   // INVALID_ARGUMENT "begun[0].finish_reason: ...".
//   RETURN_IF_ERROR(rpc::CheckEnums(request));
//   RETURN_IF_ERROR(rpc::CheckEnums(sample, "samples[3]"));
//   RETURN_IF_ERROR(rpc::CheckAnswerEnums(response));    // INTERNAL: another version answers
//
// Every request that has an enum is checked where it comes in, every answer that has one where it
// is read.
#ifndef TANDEM_COMMON_RPC_ENUM_CHECK_H_
#define TANDEM_COMMON_RPC_ENUM_CHECK_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

// INVALID_ARGUMENT with a BadField names the first enum field of the message, or of those within
// it, that holds a number without a name, below `place`. Looks at nothing but messages and enums:
// what it costs does not grow with lists of numbers. Thread-safe.
absl::Status CheckEnums(const google::protobuf::Message& message, absl::string_view place = "");

// The same for an answer, as INTERNAL.
absl::Status CheckAnswerEnums(const google::protobuf::Message& response);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_ENUM_CHECK_H_
