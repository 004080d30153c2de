// Who may ask: a bearer token, and the addresses where none is needed.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_BEARER_TOKEN_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_BEARER_TOKEN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::rollout::openai {

// Environment variable that holds the token where no file is named.
inline constexpr char kTokenVariable[] = "TANDEM_OPENAI_TOKEN";

// The token of `file`, or of the environment where that is empty; empty where neither is there.
// White space around it is left out. INVALID_ARGUMENT for a file without one, or for a token that a
// header cannot carry.
absl::StatusOr<std::string> ReadToken(const std::string& file);

// UNAUTHENTICATED unless the Authorization header's value (may be null) is "Bearer TOKEN". Takes as
// long whatever differs. An empty token lets everyone pass.
absl::Status CheckToken(const std::string& token, const char* authorization);

// INVALID_ARGUMENT for an address that is no HOST:PORT, and for one that other machines reach where
// there is no token and `allow_anyone` is false.
absl::Status CheckListen(const std::string& listen, bool has_token, bool allow_anyone);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_BEARER_TOKEN_H_
