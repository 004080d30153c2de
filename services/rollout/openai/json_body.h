// Parses a request body as JSON. Safe for untrusted input.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_JSON_BODY_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_JSON_BODY_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::rollout::openai {

// Parses `body` as a JSON object, in linear time. INVALID_ARGUMENT if it is none, has a number beyond
// the range of a double, or nests deeper than 64 levels; or if it has more than 100,000 objects and
// arrays, 200,000 strings and names, or 4,000,000 values, each of which takes more memory than its
// text.
absl::StatusOr<nlohmann::ordered_json> ParseJsonBody(std::string_view body);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_JSON_BODY_H_
