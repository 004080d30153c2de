#include "common/model/families/row_experts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// Of all layers. Larger numbers mean a corrupt file, and products of sizes could overflow.
constexpr int64_t kMaxExperts = int64_t{1} << 16;

// Says for each layer whether the list at `key` names it.
absl::StatusOr<std::vector<bool>> LayerList(const ConfigReader& config, const std::string& key,
                                            int64_t num_layers) {
  std::vector<bool> layers(static_cast<size_t>(num_layers));
  if (key.empty() || !config.Has(key.c_str())) return layers;
  const json& list = config.At(key.c_str());
  if (!list.is_array()) return config.Invalid(key.c_str(), "a list of layers");
  for (const json& layer : list) {
    if (!layer.is_number_integer() || layer < 0 || layer > kMaxLayers) {
      return config.Invalid(key.c_str(), "a list of layers, counted from 0");
    }
    if (layer < num_layers) layers[layer.get<size_t>()] = true;
  }
  return layers;
}

// Reads a list of "dense" and "sparse", of false and true, or of 0 and 1, for each layer.
absl::StatusOr<std::vector<bool>> ListedKinds(const ConfigReader& config, const char* key,
                                              int64_t num_layers) {
  const json& list = config.At(key);
  if (!list.is_array() || static_cast<int64_t>(list.size()) != num_layers) {
    return config.Invalid(key, absl::StrCat("a list of ", num_layers, " kinds of layers"));
  }
  std::vector<bool> has_experts;
  for (const json& kind : list) {
    const bool is_sparse = kind == "sparse" || kind == true || kind == 1;
    if (!is_sparse && kind != "dense" && kind != false && kind != 0) {
      return config.Unsupported(key, "dense, sparse");
    }
    has_experts.push_back(is_sparse);
  }
  return has_experts;
}

absl::StatusOr<int64_t> LastLayer(const RowValue& value, const RowValues& values,
                                  int64_t num_layers) {
  const RowValues::Source source = values.SourceOf(value);
  const bool is_last = value.empty() || !source.Has() || source.object.At(source.key.c_str()) == -1;
  if (is_last) return num_layers - 1;
  return values.Count(value, kMaxLayers, num_layers - 1);
}

// Says for each layer whether it has experts.
absl::StatusOr<std::vector<bool>> LayersWithExperts(const v1::Experts& row, const RowValues& values,
                                                    int64_t num_layers) {
  const ConfigReader& config = values.config();
  for (const std::string& key : row.layer_kinds()) {
    if (config.Has(key.c_str())) return ListedKinds(config, key.c_str(), num_layers);
  }
  if (!row.expert_layers().empty() && config.Has(row.expert_layers().c_str())) {
    return LayerList(config, row.expert_layers(), num_layers);
  }
  ASSIGN_OR_RETURN(const int64_t first, values.Count(row.first_layer(), kMaxLayers, 0));
  ASSIGN_OR_RETURN(const int64_t last, LastLayer(row.last_layer(), values, num_layers));
  int64_t interval = 1;
  if (!row.layer_interval().empty()) {
    ASSIGN_OR_RETURN(interval, values.Size(row.layer_interval(), kMaxLayers));
  }
  ASSIGN_OR_RETURN(const std::vector<bool> dense,
                   LayerList(config, row.dense_layers(), num_layers));
  std::vector<bool> has_experts;
  for (int64_t i = 0; i < num_layers; ++i) {
    has_experts.push_back(!dense[i] && i >= first && i <= last && (i + 1) % interval == 0);
  }
  return has_experts;
}

absl::Status ParseGroups(const v1::Experts& row, const RowValues& values, int64_t num_experts,
                         RoutingSpec& spec) {
  ASSIGN_OR_RETURN(spec.num_groups, values.Count(row.num_groups(), kMaxExperts, 1));
  spec.num_groups = std::max<int64_t>(1, spec.num_groups);  // null
  ASSIGN_OR_RETURN(spec.top_groups, values.Count(row.top_groups(), kMaxExperts, spec.num_groups));
  if (spec.top_groups == 0) spec.top_groups = spec.num_groups;
  spec.group_score = row.group_score() == v1::GROUP_SCORE_SUM_OF_TWO
                         ? RoutingSpec::GroupScore::kSumOfTwo
                         : RoutingSpec::GroupScore::kLargest;
  if (num_experts % spec.num_groups != 0) {
    return values.SourceOf(row.num_groups())
        .Invalid(absl::StrCat("a divisor of the number of experts, ", num_experts));
  }
  if (spec.top_groups > spec.num_groups) {
    return values.SourceOf(row.top_groups())
        .Invalid(absl::StrCat("at most the number of groups, ", spec.num_groups));
  }
  const int64_t most = num_experts / spec.num_groups * spec.top_groups;
  if (spec.top_k > most) {
    return values.SourceOf(row.top_groups())
        .Invalid(absl::StrCat("such that its groups have the ", spec.top_k,
                              " experts that a token reaches; they have ", most));
  }
  return absl::OkStatus();
}

absl::Status ParseRouting(const v1::Experts& row, const RowValues& values, int64_t num_experts,
                          const NormSpec& norm, RoutingSpec& spec) {
  ASSIGN_OR_RETURN(spec.top_k, values.Size(row.top_k(), kMaxExperts));
  if (spec.top_k > num_experts) {
    return values.SourceOf(row.top_k())
        .Invalid(absl::StrCat("at most \"", values.SourceOf(row.num_experts()).key, "\", ",
                              num_experts));
  }
  spec.score = row.score() == v1::ROUTER_SCORE_SIGMOID       ? RoutingSpec::Score::kSigmoid
               : row.score() == v1::ROUTER_SCORE_SPARSEMIXER ? RoutingSpec::Score::kSparsemixer
               : row.score() == v1::ROUTER_SCORE_SIGMOID_OF_CHOSEN
                   ? RoutingSpec::Score::kSigmoidOfChosen
                   : RoutingSpec::Score::kSoftmax;
  ASSIGN_OR_RETURN(spec.bias, values.Flag(row.router_bias(), false));
  ASSIGN_OR_RETURN(spec.correction_bias, values.Flag(row.correction_bias(), false));
  RETURN_IF_ERROR(ParseGroups(row, values, num_experts, spec));
  ASSIGN_OR_RETURN(spec.normalize, values.Flag(row.normalize(), false));
  ASSIGN_OR_RETURN(spec.scale, values.Positive(row.scale(), 1.0));
  ASSIGN_OR_RETURN(spec.jitter, values.Limit(row.jitter()));
  ASSIGN_OR_RETURN(spec.weigh_inputs, values.Flag(row.weigh_inputs(), false));
  ASSIGN_OR_RETURN(const bool normed, values.Flag(row.router_norm(), false));
  if (normed) spec.norm = norm;
  ASSIGN_OR_RETURN(spec.logit_scale, values.Positive(row.router_logit_scale(), 1.0));
  ASSIGN_OR_RETURN(spec.expert_scales, values.Flag(row.expert_scales(), false));
  return absl::OkStatus();
}

absl::Status ParseShared(const v1::Experts& row, const RowValues& values, ExpertSpec& spec) {
  ASSIGN_OR_RETURN(const int64_t size, values.Count(row.shared_intermediate_size(), kMaxWidth, 0));
  ASSIGN_OR_RETURN(const int64_t count, values.Count(row.num_shared(), kMaxExperts, 1));
  spec.shared_intermediate_size = size * count;
  if (spec.shared_intermediate_size > kMaxWidth) {
    return values.SourceOf(row.num_shared())
        .Invalid(absl::StrCat("such that shared experts have at most ", kMaxWidth, " units"));
  }
  if (spec.shared_intermediate_size == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(spec.shared_gate, values.Flag(row.shared_gate(), false));
  ASSIGN_OR_RETURN(spec.shared_bias, values.Flag(row.shared_bias(), false));
  return absl::OkStatus();
}

// Returns the experts of a layer; 0 experts if there are none.
absl::StatusOr<ExpertSpec> ParseExpertsOfLayer(const v1::Experts& row, const RowValues& values,
                                               const LayerSpec& layer, int64_t num_layers) {
  const FeedForwardSpec& dense = layer.feed_forward;
  ExpertSpec spec;
  ASSIGN_OR_RETURN(spec.num_experts, values.Count(row.num_experts(), kMaxExperts, 0));
  ASSIGN_OR_RETURN(spec.beside_dense, values.Flag(row.beside_dense(), false));
  if (spec.num_experts == 0 && spec.beside_dense) {
    return values.SourceOf(row.num_experts()).Invalid("a number of experts from 1 on");
  }
  if (spec.num_experts == 0) return spec;
  if (spec.num_experts * num_layers > kMaxExperts) {
    return values.SourceOf(row.num_experts())
        .Invalid(absl::StrCat("at most ", kMaxExperts / num_layers, " in each of ", num_layers,
                              " layers"));
  }
  RETURN_IF_ERROR(ParseRouting(row, values, spec.num_experts, layer.norm, spec.routing));
  ASSIGN_OR_RETURN(spec.intermediate_size, values.Size(row.intermediate_size(), kMaxWidth));
  spec.activation = dense.activation;
  if (!row.activation().empty()) {
    ASSIGN_OR_RETURN(spec.activation, values.ActivationOf(row.activation()));
  }
  if (!dense.gated || spec.activation == Activation::kXielu) {
    return absl::UnimplementedError(
        absl::StrCat(values.config().place(),
                     ": layers of experts have a gate and an activation other than xielu; found ",
                     dense.gated ? "that one" : "no gate"));
  }
  ASSIGN_OR_RETURN(spec.bias, values.Flag(row.bias(), false));
  RETURN_IF_ERROR(ParseShared(row, values, spec));
  return spec;
}

// Returns the lists of config.json that have a value for each layer, by their keys.
absl::StatusOr<std::map<std::string, json>> ListsOfLayers(const v1::Experts& row,
                                                          const ConfigReader& config,
                                                          int64_t num_layers) {
  std::map<std::string, json> lists;
  for (const RowValue* value : {&row.num_experts(), &row.top_k(), &row.intermediate_size(),
                                &row.shared_intermediate_size(), &row.num_shared()}) {
    for (const std::string& key : *value) {
      if (!config.Has(key.c_str()) || !config.At(key.c_str()).is_array()) continue;
      const json& list = config.At(key.c_str());
      if (static_cast<int64_t>(list.size()) != num_layers) {
        return config.Invalid(key.c_str(),
                              absl::StrCat("a number, or one for each of ", num_layers, " layers"));
      }
      lists[key] = list;
    }
  }
  return lists;
}

}  // namespace

absl::Status ParseExperts(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  if (!row.has_experts()) return absl::OkStatus();
  const v1::Experts& experts = row.experts();
  const int64_t num_layers = spec.num_layers();
  const LayerSpec dense = spec.layers.front();  // activation and norm are the same in all layers
  ASSIGN_OR_RETURN(const std::vector<bool> has_experts,
                   LayersWithExperts(experts, values, num_layers));
  ASSIGN_OR_RETURN(const auto lists, ListsOfLayers(experts, values.config(), num_layers));
  json config = values.config().object();
  const ConfigReader reader(config, values.config().place());
  RowValues of_layer(reader);
  of_layer.sizes = values.sizes;
  std::optional<ExpertSpec> parsed;  // the last layer's
  for (int64_t i = 0; i < num_layers; ++i) {
    if (!has_experts[i]) continue;
    for (const auto& [key, list] : lists) config[key] = list[static_cast<size_t>(i)];
    if (!parsed.has_value() || !lists.empty()) {
      ASSIGN_OR_RETURN(parsed, ParseExpertsOfLayer(experts, of_layer, dense, num_layers));
    }
    if (parsed->num_experts > 0) spec.layers[i].experts = *parsed;
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
