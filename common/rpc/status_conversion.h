// The one mapping between absl::Status, which our code returns, and grpc::Status, which the wire
// carries. Codes map one to one. A payload (type URL -> bytes) travels as an Any of a
// google.rpc.Status in the error details and comes back as a payload, so any gRPC client can read
// it.
//
//   return rpc::ToGrpcStatus(rpc::InvalidField("sampling.temperature", "expected >= 0, found -1"));
//
//   absl::Status status = rpc::FromGrpcStatus(stub->BeginUpdate(&context, request, &response));
//   if (auto params = rpc::GetDetail<common::v1::UnloadedParams>(status)) ...
//
// Other clients refuse trailers of more than 8 KiB by default, which would hide the error. So this
// truncates messages, keeps the first names of each list in UnloadedParams, and omits other details
// that do not fit.
#ifndef TANDEM_COMMON_RPC_STATUS_CONVERSION_H_
#define TANDEM_COMMON_RPC_STATUS_CONVERSION_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

grpc::Status ToGrpcStatus(const absl::Status& status);

// Maps unknown codes to UNKNOWN; omits details that do not parse.
absl::Status FromGrpcStatus(const grpc::Status& status);

// "type.googleapis.com/tandem.common.v1.BadField"
std::string DetailTypeUrl(const google::protobuf::Descriptor& descriptor);

// Adds the detail to the error; replaces an earlier one of the same type. Leaves an OK status
// alone.
void AttachDetail(absl::Status& status, const google::protobuf::Message& detail);

// Returns the detail of type T, or nullopt if the status has none that parses.
template <typename T>
std::optional<T> GetDetail(const absl::Status& status) {
  const auto payload = status.GetPayload(DetailTypeUrl(*T::descriptor()));
  T detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

// INVALID_ARGUMENT "<field>: <description>" with a BadField.
absl::Status InvalidField(absl::string_view field, absl::string_view description);

// Returns `status` with an ErrorInfo: a stable reason in UPPER_SNAKE_CASE and the message's
// variable parts.
absl::Status WithReason(
    absl::Status status, absl::string_view reason,
    std::initializer_list<std::pair<absl::string_view, absl::string_view>> metadata = {});

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_STATUS_CONVERSION_H_
