#include "services/rollout/openai/bearer_token.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/io/read_file.h"
#include "common/net/host_port.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transport_security.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"

namespace tandem::rollout::openai {
namespace {

constexpr absl::string_view kBearer = "Bearer ";

}  // namespace

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  std::string token;
  std::string place = kTokenVariable;
  if (!file.empty()) {
    place = file;
    ASSIGN_OR_RETURN(token, io::ReadInput(file));
  } else if (const char* variable = std::getenv(kTokenVariable); variable != nullptr) {
    token = variable;
  }
  token = std::string(absl::StripAsciiWhitespace(token));
  if (token.empty() && !file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": expected a token, found none"));
  }
  if (!std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": expected one token of printable ASCII characters without spaces"));
  }
  return token;
}

absl::string_view BearerOf(const char* authorization) {
  absl::string_view found = authorization == nullptr ? "" : authorization;
  if (!absl::StartsWithIgnoreCase(found, kBearer)) return "";
  found.remove_prefix(kBearer.size());
  return absl::StripAsciiWhitespace(found);
}

absl::Status CheckToken(const std::string& token, const char* authorization) {
  if (token.empty()) return absl::OkStatus();
  const bool is_bearer =
      authorization != nullptr && absl::StartsWithIgnoreCase(authorization, kBearer);
  if (is_bearer && security::AreEqual(token, BearerOf(authorization))) return absl::OkStatus();
  return rpc::WithReason(
      absl::UnauthenticatedError(
          is_bearer
              ? "wrong API key for this rollout"
              : "expected the header \"Authorization: Bearer TOKEN\" with this rollout's token"),
      "INVALID_API_KEY");
}

absl::Status CheckListen(const std::string& listen, bool has_token, bool allow_anyone) {
  const absl::StatusOr<net::HostPort> address = net::ParseListenAddress(listen);
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("openai-listen: cannot listen: ", address.status().message(),
                     "; for instance 127.0.0.1:8000"));
  }
  if (rpc::IsLoopback(listen) || has_token || allow_anyone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "openai-listen: ", listen,
      " is reachable from other machines without a token; give one (--openai-token-file or ",
      kTokenVariable, "), listen on 127.0.0.1, or allow it with --openai-insecure"));
}

}  // namespace tandem::rollout::openai
