// A parsed request to /inference/v1/generate: token ids in and out, as vLLM's route of that name.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATE_REQUEST_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATE_REQUEST_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "services/rollout/openai/completion_request.h"

namespace tandem::rollout::openai {

// Reads {"token_ids", "sampling_params"} and what vLLM has beside them. INVALID_ARGUMENT with a
// BadField for a field that is malformed, unknown, or asks for an unsupported change of the result.
absl::StatusOr<CompletionRequest> ParseGenerateRequest(const nlohmann::ordered_json& body,
                                                       const ParseOptions& options = {});

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATE_REQUEST_H_
