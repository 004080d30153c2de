// The range of policy versions. Check it wherever a version enters a process: in requests, peers'
// responses, and files. Versions are 0 to 2^53 - 1, so that JSON readers represent them exactly and
// sums of a few fit in an int64; -1 stands for "none" in fields that say so.
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

// INVALID_ARGUMENT with a BadField for a request's `field`.
absl::Status CheckPolicyVersion(absl::string_view field, int64_t version,
                                NoVersion none = NoVersion::kRefused);

// OUT_OF_RANGE for a version that a peer or a file at `place` reports: "rollout-0 at 10.0.0.2:5001:
// policy_version: expected 0 to 9007199254740991, found -7".
absl::Status CheckReportedVersion(absl::string_view place, int64_t version,
                                  NoVersion none = NoVersion::kRefused);

// Returns version + 1, for a version in range or -1. OUT_OF_RANGE after the last version.
absl::StatusOr<int64_t> PolicyVersionAfter(int64_t version);

// Like CheckPolicyVersion(), for an incarnation: same range, and 0 stands for "none".
absl::Status CheckIncarnation(absl::string_view field, int64_t incarnation);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_POLICY_VERSION_H_
