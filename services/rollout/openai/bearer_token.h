// Access control: a bearer token, and the listen addresses that need none.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_BEARER_TOKEN_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_BEARER_TOKEN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::rollout::openai {

// Environment variable for the token, if no file is given.
inline constexpr char kTokenVariable[] = "TANDEM_OPENAI_TOKEN";

// Reads the token from `file`, or from the environment if `file` is empty; returns an empty token
// if neither is set. Strips surrounding white space. INVALID_ARGUMENT for a file without a token,
// or for a token that a header cannot carry.
absl::StatusOr<std::string> ReadToken(const std::string& file);

// The TOKEN of an Authorization header "Bearer TOKEN" (may be null); empty if it is another one.
absl::string_view BearerOf(const char* authorization);

// UNAUTHENTICATED unless the Authorization header's value (may be null) is "Bearer TOKEN". Compares
// in constant time. An empty token admits everyone.
absl::Status CheckToken(const std::string& token, const char* authorization);

// INVALID_ARGUMENT if `listen` is not HOST:PORT, or if other machines can reach it although there
// is no token and `allow_anyone` is false.
absl::Status CheckListen(const std::string& listen, bool has_token, bool allow_anyone);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_BEARER_TOKEN_H_
