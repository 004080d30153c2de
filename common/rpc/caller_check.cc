#include "common/rpc/caller_check.h"

#include <grpc/grpc_security_constants.h>

#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/security/method_roles.h"
#include "common/security/secret.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::rpc {
namespace {

constexpr absl::Duration kBetweenLines = absl::Seconds(1);

std::vector<std::string> UrisOf(const grpc::AuthContext& connection) {
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : connection.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return uris;
}

// Returns the text after "Bearer "; nothing if the call shows no token.
std::optional<std::string> TokenIn(const Metadata& metadata) {
  const auto found = metadata.find(kAuthorization);
  if (found == metadata.end()) return std::nullopt;
  absl::string_view text(found->second.data(), found->second.size());
  if (!absl::ConsumePrefix(&text, "Bearer ")) return "";
  return std::string(text);
}

std::string MethodIn(const Metadata& metadata) {
  const auto found = metadata.find(":path");
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

security::Roles RolesOf(const grpc::AuthContext& connection) {
  return security::RolesOfUris(UrisOf(connection));
}

security::Roles RolesOfCall(const Metadata& metadata, const grpc::AuthContext& connection,
                            security::TokenTable* tokens) {
  const auto token = TokenIn(metadata);
  if (!token.has_value()) return RolesOf(connection);
  security::Roles roles;
  if (tokens == nullptr) return roles;
  if (const auto role = tokens->Find(*token); role.has_value()) roles.Add(*role);
  return roles;
}

std::string CallerOf(const Metadata& metadata, const grpc::AuthContext& connection) {
  if (const auto token = TokenIn(metadata); token.has_value()) {
    return absl::StrCat("token ", absl::BytesToHexString(security::Digest(*token).substr(0, 8)));
  }
  return absl::StrJoin(UrisOf(connection), " ");
}

absl::Status CallerCheck::Check(const std::string& method, const Metadata& metadata,
                                const grpc::AuthContext& connection) {
  const security::Roles roles = RolesOfCall(metadata, connection, tokens_.get());
  if (metadata.find(kAuthorization) != metadata.end()) {
    if (tokens_ == nullptr) {
      return absl::UnauthenticatedError(
          absl::StrCat(method,
                       ": the caller sent a token, but this server accepts none; start the server "
                       "with --tokens FILE, or use a certificate"));
    }
    if (roles.empty()) {
      return absl::UnauthenticatedError(
          absl::StrCat(method, ": unknown token; expected one from the server's --tokens file"));
    }
  } else if (roles.empty()) {
    return absl::UnauthenticatedError(absl::StrCat(
        method,
        tokens_ == nullptr
            ? ": expected a certificate with the name spiffe://DOMAIN/tandem/ROLE, found none"
            : ": expected a token (--token-file, TANDEM_TOKEN) or a certificate with the name "
              "spiffe://DOMAIN/tandem/ROLE, found neither"));
  }
  RETURN_IF_ERROR(security::CheckCaller(method, roles));
  return limit_->Check(CallerOf(metadata, connection));
}

std::optional<int64_t> CallerCheck::ShouldLog() {
  absl::MutexLock lock(&mu_);
  const absl::Time now = absl::Now();
  if (now < next_line_) {
    ++num_unsaid_;
    return std::nullopt;
  }
  next_line_ = now + kBetweenLines;
  return std::exchange(num_unsaid_, 0);
}

grpc::Status CallerCheck::Process(const Metadata& metadata, grpc::AuthContext* connection,
                                  OutputMetadata*, OutputMetadata*) {
  const std::string method = MethodIn(metadata);
  // gRPC's core calls this: an exception would end the process.
  const absl::Status status = Catch([&] { return Check(method, metadata, *connection); });
  if (status.ok()) return grpc::Status::OK;
  // Labels come from the table of methods only, or strangers could fill memory with names.
  metrics_->OnRefused(security::FindMethodRoles(method) == nullptr ? "/unknown" : method,
                      status.code());
  if (const auto unsaid = ShouldLog(); unsaid.has_value()) {
    telemetry::LogWarning("call refused", {{"caller", CallerOf(metadata, *connection)},
                                           {"code", absl::StatusCodeToString(status.code())},
                                           {"message", absl::CHexEscape(status.message())},
                                           {"others_since_the_last_line", *unsaid}});
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace tandem::rpc
