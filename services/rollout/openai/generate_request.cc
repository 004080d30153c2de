#include "services/rollout/openai/generate_request.h"

#include <optional>
#include <string>
#include <utility>

#include "common/rpc/request_id.h"
#include "common/status/status_macros.h"
#include "services/rollout/engine/prompt_length.h"
#include "services/rollout/openai/request_fields.h"
#include "services/rollout/openai/sampling_fields.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

absl::Status ReadSamplingParams(const ordered_json& params, CompletionRequest& request) {
  RequestFields fields(params, "sampling_params.");
  RETURN_IF_ERROR(ReadSampling(fields, request.generation));
  if (!request.generation.max_tokens.has_value()) {
    request.generation.max_tokens = kDefaultMaxTokens;
  }
  RETURN_IF_ERROR(fields.Read("logprobs", request.num_logprobs));
  RETURN_IF_ERROR(fields.ExpectNeutral("bad_words", {}));
  RETURN_IF_ERROR(fields.ExpectNeutral("structured_outputs", {}));
  RETURN_IF_ERROR(fields.ExpectNeutral("prompt_logprobs", {}));
  // Arguments of vLLM's plug-ins. This one asks for a shorter form of log-probs beside the usual one.
  if (const ordered_json* extra = fields.Find("extra_args"); extra != nullptr) {
    if (!extra->is_object()) return fields.Error("extra_args", "an object");
    RequestFields inner(*extra, "sampling_params.extra_args.");
    inner.Ignore({"prl_compact_logprobs"});
    RETURN_IF_ERROR(inner.ExpectAllKnown());
  }
  // No text is returned, and log-probs have one form.
  fields.Ignore({"skip_special_tokens", "detokenize", "flat_logprobs", "output_kind"});
  return fields.ExpectAllKnown();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseGenerateRequest(const ordered_json& body,
                                                       const ParseOptions& options) {
  RequestFields fields(body);
  CompletionRequest request;
  request.route = Route::kGenerate;
  RETURN_IF_ERROR(fields.Read("model", request.model));
  RETURN_IF_ERROR(ReadStreaming(fields, request));
  RETURN_IF_ERROR(fields.Read("request_id", request.generation.id));
  RETURN_IF_ERROR(rpc::CheckRequestId(request.generation.id));
  RETURN_IF_ERROR(fields.Read("priority", request.generation.priority));
  RETURN_IF_ERROR(fields.Read("user", request.generation.client_id));
  RETURN_IF_ERROR(fields.Read("return_token_ids", request.return_token_ids));
  CompletionPrompt prompt;
  const ordered_json* ids = fields.Find("token_ids");
  if (ids == nullptr || !ids->is_array()) return fields.Error("token_ids", "a list of token ids");
  RETURN_IF_ERROR(ReadIdList(*ids, "token_ids", prompt.ids));
  RETURN_IF_ERROR(
      CheckPromptLength(static_cast<int64_t>(prompt.ids.size()), options.text.max_model_len));
  request.prompts.push_back(std::move(prompt));
  const ordered_json* params = fields.Find("sampling_params");
  if (params != nullptr && !params->is_object()) {
    return fields.Error("sampling_params", "an object");
  }
  RETURN_IF_ERROR(
      ReadSamplingParams(params == nullptr ? ordered_json::object() : *params, request));
  RETURN_IF_ERROR(CheckNumChoices(request, 1));
  FinishLogprobs(options, request);
  request.generation.return_ranks = request.num_logprobs.has_value();
  request.generation.stream = request.stream;
  for (const char* name : {"features", "content_parts", "kv_transfer_params"}) {
    RETURN_IF_ERROR(fields.ExpectNeutral(name, {}));
  }
  // A salt sets caches of other salts apart; blocks of other weights already are.
  fields.Ignore({"cache_salt"});
  RETURN_IF_ERROR(fields.ExpectAllKnown());
  return request;
}

}  // namespace tandem::rollout::openai
