#include "common/rpc/policy_version.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::rpc {
namespace {

bool IsInRange(int64_t version, NoVersion none) {
  return version >= (none == NoVersion::kAllowed ? -1 : 0) && version <= kMaxPolicyVersion;
}

std::string Explain(int64_t version, NoVersion none) {
  return absl::StrCat("expected ", none == NoVersion::kAllowed ? "-1 (none)" : "0", " to ",
                      kMaxPolicyVersion, ", found ", version);
}

}  // namespace

absl::Status CheckPolicyVersion(absl::string_view field, int64_t version, NoVersion none) {
  if (IsInRange(version, none)) return absl::OkStatus();
  return InvalidField(field, Explain(version, none));
}

absl::Status CheckReportedVersion(absl::string_view place, int64_t version, NoVersion none) {
  if (IsInRange(version, none)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(place, ": policy_version: ", Explain(version, none)));
}

absl::StatusOr<int64_t> PolicyVersionAfter(int64_t version) {
  if (version >= kMaxPolicyVersion) {
    return absl::OutOfRangeError(absl::StrCat("no policy version is left after ", version,
                                              ": versions are 0 to ", kMaxPolicyVersion,
                                              "; restart trainer and rollouts with a smaller one"));
  }
  return version + 1;
}

absl::Status CheckIncarnation(absl::string_view field, int64_t incarnation) {
  if (IsInRange(incarnation, NoVersion::kRefused)) return absl::OkStatus();
  return InvalidField(field, Explain(incarnation, NoVersion::kRefused));
}

}  // namespace tandem::rpc
