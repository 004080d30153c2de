// Which roles may call which method, and which role serves it: one table for all services.
#ifndef TANDEM_COMMON_SECURITY_METHOD_ROLES_H_
#define TANDEM_COMMON_SECURITY_METHOD_ROLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/security/role.h"

namespace tandem::security {

struct MethodRoles {
  const char* method;  // "/tandem.trainer.v1.TrainerService/TrainStep"
  Roles callers;       // who may call it
  Roles servers;       // who may serve it
};

// Covers every method that our processes serve, health and reflection included.
const std::vector<MethodRoles>& AllMethodRoles();

// Null for a method that is not in the table: nobody may call it.
const MethodRoles* FindMethodRoles(absl::string_view method);

// Checks a caller with the roles `found`: OK, or PERMISSION_DENIED that names the method, the roles
// found and those allowed.
absl::Status CheckCaller(absl::string_view method, Roles found);

// Does the same for the server; its client checks before it sends anything.
absl::Status CheckServer(absl::string_view method, Roles found);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_METHOD_ROLES_H_
