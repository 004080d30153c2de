// The size of a request's id. Servers keep ids, log them, and repeat them in every message of a
// stream, so check the id of each request that carries one, before anything else is done with it.
//
//   RETURN_IF_ERROR(rpc::CheckRequestId(request.request_id()));
#ifndef TANDEM_COMMON_RPC_REQUEST_ID_H_
#define TANDEM_COMMON_RPC_REQUEST_ID_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

// Room for a UUID and a caller's prefix.
inline constexpr size_t kMaxRequestIdBytes = 128;

// INVALID_ARGUMENT with a BadField for an id that is longer. Accepts an empty id.
absl::Status CheckRequestId(absl::string_view id, absl::string_view field = "request_id");

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_REQUEST_ID_H_
