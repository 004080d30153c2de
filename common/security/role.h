// Role: what a process is to the others, as its certificate or its token states.
//
// A certificate states it with a URI among its subject alternative names:
//
//   spiffe://TRUST_DOMAIN/tandem/ROLE        or with a suffix: .../tandem/rollout/pod-7
//
// The trust domain is whatever the certificate authority in --tls-ca vouches for. A certificate
// with several such names has several roles.
#ifndef TANDEM_COMMON_SECURITY_ROLE_H_
#define TANDEM_COMMON_SECURITY_ROLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::security {

enum class Role : uint8_t {
  kDriver,    // the CLI and other clients that generate, train and publish
  kTrainer,   // a rank of the trainer
  kRollout,   // a rank of a rollout
  kReward,    // serves rewards, calls nobody
  kObserver,  // may read and change nothing
};

inline constexpr Role kAllRoles[] = {Role::kDriver, Role::kTrainer, Role::kRollout, Role::kReward,
                                     Role::kObserver};

// "driver", "trainer", ...
absl::string_view RoleName(Role role);
// INVALID_ARGUMENT, with the known names, for any other.
absl::StatusOr<Role> ParseRole(absl::string_view name);

// A set of roles.
class Roles {
 public:
  Roles() = default;
  Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  void Add(Role role) { bits_ |= Bit(role); }
  bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  bool Meets(Roles other) const { return (bits_ & other.bits_) != 0; }
  bool empty() const { return bits_ == 0; }
  bool operator==(const Roles&) const = default;
  // "driver, trainer"; "none".
  std::string ToString() const;

 private:
  static uint8_t Bit(Role role) { return static_cast<uint8_t>(1u << static_cast<int>(role)); }
  uint8_t bits_ = 0;
};

// Returns the roles in a certificate's URIs; ignores other URIs.
Roles RolesOfUris(const std::vector<std::string>& uris);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_ROLE_H_
