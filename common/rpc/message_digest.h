// The digest that messages of a weight update carry in their field message_digest, so that one
// which is changed on its way, or is an answer to another call, is known (weight_service.proto says
// of what it is).
//
//   rpc::SetDigest(request);                       // the last change before it leaves
//   RETURN_IF_ERROR(rpc::CheckDigest(*request));    // where it arrives
//   rpc::SetDigest(response, request->message_digest());
//   RETURN_IF_ERROR(rpc::CheckDigest(response, request.message_digest()));
//
// It guards against mistakes of machines and programs, not against somebody who wants to deceive.
#ifndef TANDEM_COMMON_RPC_MESSAGE_DIGEST_H_
#define TANDEM_COMMON_RPC_MESSAGE_DIGEST_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

// `of_request`: the digest of the request that a response answers. The message's type must have the
// field message_digest, else the process ends.
void SetDigest(google::protobuf::Message& message, absl::string_view of_request = "");

// DATA_LOSS, with the message's name, where it has another digest than it states, or states none.
absl::Status CheckDigest(const google::protobuf::Message& message,
                         absl::string_view of_request = "");

// What gRPC says of bytes that are no message of the call's type, as DATA_LOSS; else the status.
absl::Status ExplainGarbled(absl::Status status);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_MESSAGE_DIGEST_H_
