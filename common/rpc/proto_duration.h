// google.protobuf.Duration to and from absl::Duration.
#ifndef TANDEM_COMMON_RPC_PROTO_DURATION_H_
#define TANDEM_COMMON_RPC_PROTO_DURATION_H_

#include <google/protobuf/duration.pb.h>

#include <cstdint>

#include "absl/time/time.h"

namespace tandem::rpc {

inline absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

// Truncates to nanoseconds.
inline google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration out;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return out;
}

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_PROTO_DURATION_H_
