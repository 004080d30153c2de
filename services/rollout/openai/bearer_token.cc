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

absl::Status CheckToken(const std::string& token, const char* authorization) {
  if (token.empty()) return absl::OkStatus();
  absl::string_view found = authorization == nullptr ? "" : authorization;
  const bool is_bearer = absl::StartsWithIgnoreCase(found, "Bearer ");
  if (is_bearer) found.remove_prefix(7);
  if (is_bearer && security::AreEqual(token, absl::StripAsciiWhitespace(found))) {
    return absl::OkStatus();
  }
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
