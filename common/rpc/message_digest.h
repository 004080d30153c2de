// The digest in the field message_digest of a weight update's messages. It detects a message that
// changed in transit and a response to another call (weight_service.proto defines its input).
//
//   rpc::SetDigest(request);                     // the caller, after all other changes
//   RETURN_IF_ERROR(rpc::CheckDigest(request));  // the service, on arrival
//   rpc::SetDigest(response, request.message_digest());
//   RETURN_IF_ERROR(rpc::CheckDigest(response, request.message_digest()));  // the caller
//
// It protects against faulty machines and programs, not against an attacker.
#ifndef TANDEM_COMMON_RPC_MESSAGE_DIGEST_H_
#define TANDEM_COMMON_RPC_MESSAGE_DIGEST_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

// `of_request`: the digest of the request that a response belongs to. Aborts if the message's type
// has no field message_digest.
void SetDigest(google::protobuf::Message& message, absl::string_view of_request = "");

// DATA_LOSS, with the message's name, if its digest is absent or wrong.
absl::Status CheckDigest(const google::protobuf::Message& message,
                         absl::string_view of_request = "");

// Turns gRPC's error for bytes that do not parse as the call's message type into DATA_LOSS; returns
// other statuses unchanged.
absl::Status ExplainGarbled(absl::Status status);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_MESSAGE_DIGEST_H_
