#include "common/model/reward_model_spec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/classifier_config.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace tandem::model {
namespace {

constexpr char kClassifier[] = "ForSequenceClassification";
constexpr char kScore[] = "score.weight";

absl::Status SeveralLabels(const std::string& place, int64_t count) {
  return absl::UnimplementedError(absl::StrCat(place,
                                               ": expected a reward model with one label, found ",
                                               count, "; none of several labels is a reward"));
}

}  // namespace

bool IsRewardArchitecture(absl::string_view architecture) {
  return absl::EndsWith(architecture, kClassifier);
}

bool IsRewardModel(const nlohmann::json& config) {
  nlohmann::json copy = config;
  return ReplaceClassifier(kClassifier, copy);
}

absl::StatusOr<ModelSpec> ParseRewardModelSpec(nlohmann::json config, const std::string& place) {
  std::string architecture;
  if (IsRewardModel(config)) {
    architecture = config["architectures"][0].get<std::string>();
    ReplaceClassifier(kClassifier, config);
  } else {
    const nlohmann::json found =
        config.is_object() ? config.value("architectures", nlohmann::json()) : nlohmann::json();
    return absl::InvalidArgumentError(
        absl::StrCat(place,
                     ": architectures: expected a reward model's, such as "
                     "LlamaForSequenceClassification, found ",
                     found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  }
  // Two labels are transformers' default, which it does not write.
  if (const auto labels = config.find("id2label");
      labels != config.end() && labels->is_object() && labels->size() != 1) {
    return SeveralLabels(absl::StrCat(place, ": id2label"), static_cast<int64_t>(labels->size()));
  }
  ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(config, place));
  if (spec.vision.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        place, ": ", architecture, " has a vision tower; reward models without one are supported"));
  }
  spec = ValueModelSpec(std::move(spec));
  spec.head_bias = false;
  spec.architecture = std::move(architecture);
  return spec;
}

absl::Status CheckRewardHead(const io::ModelFolder& folder) {
  const absl::StatusOr<io::TensorView> score = folder.Find(kScore);
  if (!score.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.path(), ": a reward model needs the tensor ", kScore,
        " [1, hidden size]; the folder has none, so that it was never trained as one"));
  }
  if (score->shape.size() == 2 && score->shape[0] != 1) {
    return SeveralLabels(absl::StrCat(folder.path(), ": ", kScore), score->shape[0]);
  }
  return absl::OkStatus();
}

int64_t NumClassifiedTokens(const std::vector<int32_t>& token_ids,
                            std::optional<int64_t> pad_token_id) {
  const auto size = static_cast<int64_t>(token_ids.size());
  if (!pad_token_id.has_value()) return size;
  const auto last = std::find_if(token_ids.rbegin(), token_ids.rend(),
                                 [pad = *pad_token_id](int32_t id) { return id != pad; });
  // transformers takes the first token if all are padding.
  return std::max<int64_t>(std::min<int64_t>(1, size), token_ids.rend() - last);
}

}  // namespace tandem::model
