#include "services/rollout/engine/limits.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/teacher.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/engine/prompt_length.h"

namespace tandem::rollout {
namespace {

constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxClientBytes = 128;

template <typename T>
absl::Status Expected(absl::string_view field, absl::string_view expected, const T& found) {
  return rpc::InvalidField(field, absl::StrCat("expected ", expected, ", found ", found));
}

absl::Status CheckIds(const std::vector<int32_t>& ids, absl::string_view field,
                      const RequestLimits& limits) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limits.vocab_size) {
      // Ids came as uint32.
      return Expected(absl::StrCat(field, "[", i, "]"),
                      absl::StrCat("an id below the vocabulary's size ", limits.vocab_size),
                      static_cast<uint32_t>(ids[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTemperature(double temperature, absl::string_view field, bool zero_allowed) {
  if (std::isfinite(temperature) && (temperature > 0.0 || (zero_allowed && temperature == 0.0))) {
    return absl::OkStatus();
  }
  return Expected(field, zero_allowed ? "a finite number >= 0" : "a finite number > 0",
                  temperature);
}

absl::Status CheckPenalties(const PenaltyParams& penalties, const RequestLimits& limits) {
  const auto within = [](double value, double most) { return value >= -most && value <= most; };
  if (!within(penalties.presence, 2.0)) {
    return Expected("sampling.presence_penalty", "a number in [-2, 2]", penalties.presence);
  }
  if (!within(penalties.frequency, 2.0)) {
    return Expected("sampling.frequency_penalty", "a number in [-2, 2]", penalties.frequency);
  }
  // Beyond it, products with logits leave the range of float32.
  if (!(penalties.repetition >= 1e-6 && penalties.repetition <= 1e6)) {
    return Expected("sampling.repetition_penalty", "a number above 0, of 1e-6 to 1e6",
                    penalties.repetition);
  }
  if (penalties.logit_bias.size() > kMaxLogitBiases) {
    return Expected("sampling.logit_bias", absl::StrCat("at most ", kMaxLogitBiases, " tokens"),
                    penalties.logit_bias.size());
  }
  for (const auto& [id, bias] : penalties.logit_bias) {
    const std::string field = absl::StrCat("sampling.logit_bias[", static_cast<uint32_t>(id), "]");
    if (id < 0 || id >= limits.vocab_size) {
      return Expected(field, absl::StrCat("an id below the vocabulary's size ", limits.vocab_size),
                      static_cast<uint32_t>(id));
    }
    if (!within(bias, 100.0)) return Expected(field, "a bias in [-100, 100]", bias);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHasLogProbs(const RequestLimits& limits) {
  if (!limits.classifies) return absl::OkStatus();
  return rpc::WithReason(
      absl::FailedPreconditionError(
          "this rollout serves a reward model (...ForSequenceClassification), which scores whole "
          "sequences by RolloutService.Score; it samples no tokens and has no log-probs"),
      "REWARD_MODEL");
}

absl::Status CheckRequest(const GenerationRequest& request, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckHasLogProbs(limits));
  const int64_t prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (prompt == 0) return rpc::InvalidField("token_ids", "expected a prompt, found no tokens");
  RETURN_IF_ERROR(CheckPromptLength(prompt, limits.max_model_len));
  RETURN_IF_ERROR(CheckIds(request.prompt_ids, "token_ids.ids", limits));
  RETURN_IF_ERROR(CheckTemperature(request.filter.temperature, "sampling.temperature", true));
  if (request.filter.top_k < 0) {
    return Expected("sampling.top_k", "0 (all) or more", request.filter.top_k);
  }
  if (!(request.filter.top_p > 0.0 && request.filter.top_p <= 1.0)) {
    return Expected("sampling.top_p", "a number in (0, 1]", request.filter.top_p);
  }
  if (!(request.filter.min_p >= 0.0 && request.filter.min_p <= 1.0)) {
    return Expected("sampling.min_p", "a number in [0, 1]", request.filter.min_p);
  }
  RETURN_IF_ERROR(CheckPenalties(request.penalties, limits));
  if (request.n < 1 || request.n > kMaxSamples) {
    return Expected("sampling.n", absl::StrCat("1 to ", kMaxSamples), request.n);
  }
  if (request.num_top_logprobs < 0 || request.num_top_logprobs > kMaxTopLogprobs) {
    return Expected("top_logprobs", absl::StrCat("0 to ", kMaxTopLogprobs),
                    request.num_top_logprobs);
  }
  if (request.max_tokens.has_value() && *request.max_tokens < 1) {
    return Expected("sampling.max_tokens", "1 or more", *request.max_tokens);
  }
  if (request.min_tokens < 0) {
    return Expected("sampling.min_tokens", "0 or more", request.min_tokens);
  }
  if (request.min_tokens > limits.max_model_len - prompt) {
    return Expected("sampling.min_tokens",
                    absl::StrCat("at most ", limits.max_model_len - prompt,
                                 ", the context left after the prompt"),
                    request.min_tokens);
  }
  if (request.max_tokens.has_value() && request.min_tokens > *request.max_tokens) {
    return Expected("sampling.min_tokens",
                    absl::StrCat("at most max_tokens, which is ", *request.max_tokens),
                    request.min_tokens);
  }
  if (request.client_id.size() > kMaxClientBytes) {
    return Expected("client_id", absl::StrCat("at most ", kMaxClientBytes, " bytes"),
                    request.client_id.size());
  }
  RETURN_IF_ERROR(CheckIds(request.stop_token_ids, "sampling.stop_token_ids", limits));
  if (request.stop.size() > kMaxStops) {
    return Expected("sampling.stop", absl::StrCat("at most ", kMaxStops, " strings"),
                    request.stop.size());
  }
  for (size_t i = 0; i < request.stop.size(); ++i) {
    if (request.stop[i].empty() || request.stop[i].size() > kMaxStopBytes) {
      return Expected(absl::StrCat("sampling.stop[", i, "]"),
                      absl::StrCat("1 to ", kMaxStopBytes, " bytes"), request.stop[i].size());
    }
  }
  if (request.return_routed_experts) {
    absl::Status fits = limits.routed_layout.status();
    const int64_t room = limits.max_model_len - prompt;
    if (fits.ok()) {
      fits = limits.routed_layout->CheckLength(prompt +
                                               std::min(request.max_tokens.value_or(room), room));
    }
    if (!fits.ok()) return rpc::InvalidField("return_routed_experts", fits.message());
  }
  if (!limits.has_tokenizer && !request.stop.empty()) {
    return rpc::InvalidField("sampling.stop",
                             "stop strings need a tokenizer, and the model's folder "
                             "has no tokenizer.json; use stop_token_ids");
  }
  if (!limits.has_tokenizer && request.return_text) {
    return rpc::InvalidField(
        "return_text", "text needs a tokenizer, and the model's folder has no tokenizer.json");
  }
  return absl::OkStatus();
}

absl::Status CheckBegun(const GenerationRequest& request, const RequestLimits& limits) {
  const int64_t room = limits.max_model_len - static_cast<int64_t>(request.prompt_ids.size());
  const int64_t longest = std::min(request.max_tokens.value_or(room), room);
  std::vector<bool> seen(request.n, false);
  for (size_t i = 0; i < request.begun.size(); ++i) {
    const BegunSample& begun = request.begun[i];
    const std::string field = absl::StrCat("begun[", i, "]");
    if (begun.index < 0 || begun.index >= request.n || seen[begun.index]) {
      return Expected(field + ".index",
                      absl::StrCat("each index below sampling.n (", request.n, ") once"),
                      begun.index);
    }
    seen[begun.index] = true;
    RETURN_IF_ERROR(CheckIds(begun.token_ids, field + ".token_ids", limits));
    if (static_cast<int64_t>(begun.token_ids.size()) > longest) {
      return Expected(
          field + ".token_ids",
          absl::StrCat("at most ", longest, " tokens (sampling.max_tokens and the context)"),
          begun.token_ids.size());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const ScoreRequest& request, const RequestLimits& limits) {
  const int64_t length = static_cast<int64_t>(request.token_ids.size());
  if (length == 0) return rpc::InvalidField("token_ids", "expected tokens, found none");
  RETURN_IF_ERROR(CheckPromptLength(length, limits.max_model_len, /*generates=*/false));
  RETURN_IF_ERROR(CheckIds(request.token_ids, "token_ids", limits));
  if (limits.classifies) {
    const char* const set = request.temperature != 1.0      ? "temperature"
                            : request.num_top_logprobs != 0 ? "num_top_logprobs"
                            : request.first_scored != 0     ? "first_scored_token"
                                                            : nullptr;
    if (set != nullptr) {
      return rpc::InvalidField(set, "has no effect on a reward model's score; leave it unset");
    }
  }
  if (request.first_scored < 0 || (request.first_scored > 0 && request.first_scored >= length)) {
    return Expected("first_scored_token",
                    absl::StrCat("0, or the place of one of the ", length, " tokens"),
                    request.first_scored);
  }
  if (request.num_top_logprobs < 0 || request.num_top_logprobs > config::kMaxTeacherTopK) {
    return Expected("num_top_logprobs", absl::StrCat("0 to ", config::kMaxTeacherTopK),
                    request.num_top_logprobs);
  }
  const int64_t num_scored = length - request.first_scored;
  if (request.num_top_logprobs * num_scored > config::kMaxTopIdsOfSequence) {
    return Expected("num_top_logprobs",
                    absl::StrCat("at most ", config::kMaxTopIdsOfSequence, " ids for the ",
                                 num_scored, " tokens"),
                    request.num_top_logprobs * num_scored);
  }
  if (request.num_top_logprobs > 0 && request.temperature != 1.0) {
    return Expected("temperature", "1 with num_top_logprobs", request.temperature);
  }
  return CheckTemperature(request.temperature, "temperature", false);
}

}  // namespace tandem::rollout
