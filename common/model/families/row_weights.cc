#include "common/model/families/row_weights.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

constexpr char kLayer[] = "model.layers.{layer}.";

StoredFusion FusionOf(v1::Fusion fusion) {
  switch (fusion) {
    case v1::FUSION_STACKED:
      return StoredFusion::kStacked;
    case v1::FUSION_PER_HEAD:
      return StoredFusion::kPerHead;
    case v1::FUSION_PER_GROUP:
      return StoredFusion::kPerGroup;
    case v1::FUSION_ALTERNATING:
      return StoredFusion::kAlternating;
    default:
      return StoredFusion::kNone;
  }
}

// Adds the rules of `stored` for weights or for biases, whose names `suffix` completes.
void AddRules(const v1::StoredWeight& stored, const std::string& name_prefix,
              const std::string& tensor_prefix, const std::string& suffix, bool transposed,
              std::set<std::string>& named, std::vector<StoredRule>& rules) {
  StoredRule rule{.tensor = absl::StrCat(tensor_prefix, stored.tensor(), suffix),
                  .fusion = FusionOf(stored.fusion()),
                  .transposed = transposed,
                  .either_way = stored.either_way(),
                  .leading_one = stored.leading_one()};
  std::vector<std::string> names;
  for (const std::string& name : stored.name()) {
    names.push_back(absl::StrCat(name_prefix, name, suffix));
  }
  if (rule.fusion != StoredFusion::kNone) rule.parts = names;
  for (const std::string& name : names) {
    if (!named.insert(name).second) continue;
    rule.name = name;
    rules.push_back(rule);
  }
}

void AddAll(const v1::StoredWeight& stored, const std::string& name_prefix,
            const std::string& tensor_prefix, std::set<std::string>& named,
            std::vector<StoredRule>& rules) {
  const std::string& name = stored.name(0);
  const auto add = [&](const std::string& suffix, bool transposed) {
    AddRules(stored, name_prefix, tensor_prefix, suffix, transposed, named, rules);
  };
  if (absl::EndsWith(name, "weight") || absl::EndsWith(name, "bias") ||
      absl::EndsWith(name, "_scale") || absl::EndsWith(name, "A_log") ||
      absl::EndsWith(name, "sinks")) {
    add("", stored.transposed());
  } else {
    add(".weight", stored.transposed());
    add(".bias", false);
  }
}

}  // namespace

std::string LayerPrefixOf(const v1::FamilyRow& row) {
  return row.layer_prefix().empty() ? kLayer : row.layer_prefix();
}

std::vector<StoredConstant> StoredConstantsOf(const v1::FamilyRow& row) {
  std::vector<StoredConstant> constants;
  for (const v1::ConstantTensor& constant : row.layer_constants()) {
    constants.push_back({absl::StrCat(LayerPrefixOf(row), constant.tensor()), constant.value()});
  }
  return constants;
}

std::vector<StoredRule> StoredRulesOf(const v1::FamilyRow& row) {
  std::vector<StoredRule> rules;
  std::set<std::string> named;
  const std::string layer = LayerPrefixOf(row);
  for (const v1::StoredWeight& stored : row.weights()) AddAll(stored, "", "", named, rules);
  for (const v1::StoredWeight& stored : row.layer_weights()) {
    AddAll(stored, kLayer, layer, named, rules);
  }
  return rules;
}

}  // namespace tandem::model
