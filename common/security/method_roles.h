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
  Roles servers;       // who may answer it
};

// Of every method that a process of ours serves, health and reflection included.
const std::vector<MethodRoles>& AllMethodRoles();

// Null for a method that the table does not know: nobody may call it.
const MethodRoles* FindMethodRoles(absl::string_view method);

// What a call from `found` to `method` is answered: OK, or PERMISSION_DENIED that names the method,
// the roles found and those allowed.
absl::Status CheckCaller(absl::string_view method, Roles found);

// The same of the one that answers, as its client checks it before it says anything.
absl::Status CheckServer(absl::string_view method, Roles found);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_METHOD_ROLES_H_
