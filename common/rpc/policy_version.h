// The range of policy versions, checked wherever one enters a process: in requests, in peers'
// answers, and in files. Versions are 0 to 2^53 - 1, so that readers of JSON have them exactly and
// sums of a few of them fit in an int64; -1 stands for "none" where a field says so.
//
//   RETURN_IF_ERROR(rpc::CheckPolicyVersion("policy_version", request.policy_version()));
//   ASSIGN_OR_RETURN(policy_version_, rpc::PolicyVersionAfter(policy_version_));
#ifndef TANDEM_COMMON_RPC_POLICY_VERSION_H_
#define TANDEM_COMMON_RPC_POLICY_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::rpc {

inline constexpr int64_t kMaxPolicyVersion = (int64_t{1} << 53) - 1;

enum class NoVersion {
  kRefused,
  kAllowed,  // -1 is in range
};

// INVALID_ARGUMENT with a BadField for `field` of a request.
absl::Status CheckPolicyVersion(absl::string_view field, int64_t version,
                                NoVersion none = NoVersion::kRefused);

// OUT_OF_RANGE for what a peer or a file at `place` says: "rollout-0 at 10.0.0.2:5001:
// policy_version: expected 0 to 9007199254740991, found -7".
absl::Status CheckReportedVersion(absl::string_view place, int64_t version,
                                  NoVersion none = NoVersion::kRefused);

// version + 1, for a version in range or -1. OUT_OF_RANGE where no version is left.
absl::StatusOr<int64_t> PolicyVersionAfter(int64_t version);

// An incarnation is in the same range; 0 stands for "none". As CheckPolicyVersion().
absl::Status CheckIncarnation(absl::string_view field, int64_t incarnation);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_POLICY_VERSION_H_
