// The parameters of every family's model, by its rules, are the tensors that transformers writes.
#include <gmock/gmock.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "tests/common/model/family_configs.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

// "model.layers.3.x" -> "model.layers.N.x".
std::string WithoutNumbers(const std::string& name) {
  static const std::regex number(R"(\.\d+(?=\.))");
  return std::regex_replace(name, number, ".N");
}

std::string StoredName(const ModelSpec& spec, const std::string& name) {
  const std::vector<std::pair<std::string, std::string>> numbers = {
      {"{layer}", "N"}, {"{expert}", "N"}, {"{head}", "N"}};
  for (const StoredRule& rule : spec.stored_rules) {
    if (absl::StrReplaceAll(rule.name, numbers) == name) {
      return absl::StrReplaceAll(rule.tensor, numbers);
    }
  }
  return name;
}

bool IsIgnored(const ModelSpec& spec, const std::string& name) {
  for (const std::string& pattern : spec.ignored_tensors) {
    if (pattern[0] == '*' && absl::EndsWith(name, pattern.substr(1))) return true;
  }
  return false;
}

TEST(FamilyNames, AreThoseOfTheFolder) {
  const nlohmann::json cases = FamilyConfigs();
  for (const auto& [name, made] : cases.items()) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(made["config"], name));
    const ParameterTable table(spec);
    std::set<std::string> ours;
    for (const Parameter& parameter : table.parameters()) {
      for (const Segment& segment : parameter.segments) {
        ours.insert(StoredName(spec, WithoutNumbers(segment.name)));
      }
    }
    for (const StoredConstant& constant : spec.stored_constants) {
      ours.insert(absl::StrReplaceAll(constant.tensor, {{"{layer}", "N"}}));
    }
    std::set<std::string> theirs;
    for (const auto& tensor : made["tensors"]) {
      const std::string stored = tensor.get<std::string>();
      if (!IsIgnored(spec, stored)) theirs.insert(stored);
    }
    EXPECT_EQ(ours, theirs);
  }
}

}  // namespace
}  // namespace tandem::model
