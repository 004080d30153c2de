// The body of a request as JSON, from whoever sent it.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_JSON_BODY_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_JSON_BODY_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::rollout::openai {

// The object that `body` is. INVALID_ARGUMENT where it is none, holds a number that no double can
// hold, nests deeper than 64 levels, or has more than 100,000 objects and arrays, each of which
// takes far more memory than its text.
absl::StatusOr<nlohmann::ordered_json> ParseJsonBody(std::string_view body);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_JSON_BODY_H_
