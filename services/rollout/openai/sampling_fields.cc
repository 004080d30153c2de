#include "services/rollout/openai/sampling_fields.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/rollout/engine/limits.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

// {"17": -100}: names are ids.
absl::Status ReadLogitBias(RequestFields& fields, PenaltyParams& penalties) {
  const char kName[] = "logit_bias";
  const ordered_json* biases = fields.Find(kName);
  if (biases == nullptr) return absl::OkStatus();
  if (!biases->is_object() || biases->size() > kMaxLogitBiases) {
    return fields.Error(
        kName, absl::StrCat("an object of at most ", kMaxLogitBiases, " biases by token id"));
  }
  std::set<int32_t> seen;
  for (const auto& [name, bias] : biases->items()) {
    int32_t id = -1;
    if (!absl::SimpleAtoi(name, &id) || id < 0 || !seen.insert(id).second || !bias.is_number()) {
      return fields.Error(kName, "numbers by token id, like {\"17\": -100}");
    }
    const auto value = bias.get<double>();
    if (value == 0.0) continue;
    // The engine refuses what is out of its range; float32 could not hold all of it.
    penalties.logit_bias.emplace_back(id, static_cast<float>(std::clamp(value, -1e6, 1e6)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadSampling(RequestFields& fields, GenerationRequest& generation) {
  RETURN_IF_ERROR(fields.Read("temperature", generation.filter.temperature));
  RETURN_IF_ERROR(fields.Read("top_p", generation.filter.top_p));
  RETURN_IF_ERROR(fields.Read("top_k", generation.filter.top_k));
  if (generation.filter.top_k == -1) generation.filter.top_k = 0;  // vLLM's word for all
  RETURN_IF_ERROR(fields.Read("min_p", generation.filter.min_p));
  RETURN_IF_ERROR(fields.Read("presence_penalty", generation.penalties.presence));
  RETURN_IF_ERROR(fields.Read("frequency_penalty", generation.penalties.frequency));
  RETURN_IF_ERROR(fields.Read("repetition_penalty", generation.penalties.repetition));
  RETURN_IF_ERROR(ReadLogitBias(fields, generation.penalties));
  std::optional<int64_t> seed;
  RETURN_IF_ERROR(fields.Read("seed", seed));
  if (seed.has_value()) generation.seed = static_cast<uint64_t>(*seed);
  RETURN_IF_ERROR(fields.Read("n", generation.n));
  RETURN_IF_ERROR(fields.ReadStrings("stop", generation.stop));
  RETURN_IF_ERROR(fields.ReadIds("stop_token_ids", generation.stop_token_ids));
  RETURN_IF_ERROR(fields.Read("min_tokens", generation.min_tokens));
  RETURN_IF_ERROR(fields.Read("max_tokens", generation.max_tokens));
  RETURN_IF_ERROR(fields.Read("ignore_eos", generation.ignore_eos));
  RETURN_IF_ERROR(fields.ExpectNeutral("include_stop_str_in_output", {false}));
  fields.Ignore({"spaces_between_special_tokens"});
  return absl::OkStatus();
}

}  // namespace tandem::rollout::openai
