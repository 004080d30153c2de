#include "common/rpc/server_check.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/caller_check.h"
#include "common/security/method_roles.h"

namespace tandem::rpc {

grpc::Status ServerCheck::GetMetadata(grpc::string_ref service_url, grpc::string_ref method_name,
                                      const grpc::AuthContext& connection,
                                      std::multimap<grpc::string, grpc::string>* metadata) {
  // https://HOST/tandem.trainer.v1.TrainerService
  const absl::string_view url(service_url.data(), service_url.size());
  const absl::string_view service = url.substr(url.rfind('/') + 1);
  const absl::Status status = security::CheckServer(
      absl::StrCat("/", service, "/", absl::string_view(method_name.data(), method_name.size())),
      RolesOf(connection));
  if (!status.ok()) {
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                        std::string(status.message()));
  }
  if (std::string token = token_(); !token.empty()) {
    metadata->emplace(kAuthorization, absl::StrCat("Bearer ", token));
  }
  return grpc::Status::OK;
}

}  // namespace tandem::rpc
