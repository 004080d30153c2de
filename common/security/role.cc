#include "common/security/role.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tandem::security {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kDriver:
      return "driver";
    case Role::kTrainer:
      return "trainer";
    case Role::kRollout:
      return "rollout";
    case Role::kReward:
      return "reward";
    case Role::kObserver:
      return "observer";
  }
  return "unknown";
}

absl::StatusOr<Role> ParseRole(absl::string_view name) {
  for (const Role role : kAllRoles) {
    if (name == RoleName(role)) return role;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "role: expected driver, trainer, rollout, reward or observer, found '", name, "'"));
}

std::string Roles::ToString() const {
  std::string out;
  for (const Role role : kAllRoles) {
    if (Has(role)) absl::StrAppend(&out, out.empty() ? "" : ", ", RoleName(role));
  }
  return out.empty() ? "none" : out;
}

Roles RolesOfUris(const std::vector<std::string>& uris) {
  Roles roles;
  for (const std::string& uri : uris) {
    absl::string_view rest = uri;
    if (!absl::ConsumePrefix(&rest, "spiffe://")) continue;
    // trust domain, "tandem", role, whatever
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
    if (parts.size() < 3 || parts[0].empty() || parts[1] != "tandem") continue;
    if (const auto role = ParseRole(parts[2]); role.ok()) roles.Add(*role);
  }
  return roles;
}

}  // namespace tandem::security
