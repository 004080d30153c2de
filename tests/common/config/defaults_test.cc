// The comments of run_config.proto are what users read; defaults.yaml is what they get.
#include "common/config/defaults.h"

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/config/load.h"

namespace tandem::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// "OptimConfig.lr" -> the comment above it, on one line.
std::map<std::string, std::string> FieldComments() {
  const char* source = std::getenv("TANDEM_SOURCE");
  std::ifstream file(
      absl::StrCat(source == nullptr ? "." : source, "/proto/tandem/config/v1/run_config.proto"));
  std::map<std::string, std::string> out;
  std::string message, comment, line;
  while (std::getline(file, line)) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(text, "//")) {
      absl::StrAppend(&comment, " ", absl::StripPrefix(text, "//"));
      continue;
    }
    if (absl::StartsWith(text, "message ")) {
      message = std::string(text.substr(8, text.find(' ', 8) - 8));
    } else if (const size_t equals = text.find(" = "); equals != absl::string_view::npos) {
      const absl::string_view declaration = text.substr(0, equals);
      out[absl::StrCat(message, ".", declaration.substr(declaration.rfind(' ') + 1))] = comment;
    }
    comment.clear();
  }
  return out;
}

// The text between "Default " and the "." or ":" that ends it; "" where none is stated.
std::string StatedDefault(const std::string& comment) {
  const size_t at = comment.find("Default ");
  if (at == std::string::npos) return "";
  const std::string rest = comment.substr(at + 8);
  for (size_t i = 0; i < rest.size(); ++i) {
    const bool ends =
        (rest[i] == '.' || rest[i] == ':') && (i + 1 == rest.size() || rest[i + 1] == ' ');
    // The comment may have a line break there.
    if (ends) return std::string(absl::StripAsciiWhitespace(rest.substr(0, i)));
  }
  return rest;
}

bool SameValue(const std::string& stated, const YAML::Node& node, const FieldDescriptor& field) {
  if (stated == "empty") return node.Scalar().empty();
  if (stated == "none" && field.is_repeated()) return node.IsSequence() && node.size() == 0;
  const YAML::Node expected = YAML::Load(stated);
  if (expected.IsSequence()) return YAML::Dump(expected) == YAML::Dump(node);
  double a, b;
  if (absl::SimpleAtod(expected.Scalar(), &a) && absl::SimpleAtod(node.Scalar(), &b)) return a == b;
  return expected.Scalar() == node.Scalar();
}

void ForEachLeaf(const Descriptor& type, const YAML::Node& node, const std::string& path,
                 const std::function<void(const FieldDescriptor&, const YAML::Node&,
                                          const std::string&)>& visit) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string key = absl::StrCat(path, path.empty() ? "" : ".", field.name());
    const YAML::Node value = node[field.name()];
    ASSERT_TRUE(value.IsDefined()) << key << " has no default";
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated()) {
      ForEachLeaf(*field.message_type(), value, key, visit);
    } else {
      visit(field, value, key);
    }
  }
}

TEST(Defaults, AreWhatTheCommentsOfTheProtoState) {
  const auto comments = FieldComments();
  const YAML::Node defaults = YAML::Load(kDefaultsYaml);
  int compared = 0;
  ForEachLeaf(*v1::RunConfig::descriptor(), defaults, "",
              [&](const FieldDescriptor& field, const YAML::Node& value, const std::string& key) {
                const auto comment =
                    comments.find(absl::StrCat(field.containing_type()->name(), ".", field.name()));
                ASSERT_NE(comment, comments.end()) << key;
                const std::string stated = StatedDefault(comment->second);
                if (stated.empty() || key == "run_dir") return;  // computed, or empty by nature
                if (key == "critic.optim.lr") {                  // stated where the section is
                  EXPECT_EQ(value.as<double>(), 1e-5);
                  return;
                }
                EXPECT_TRUE(SameValue(stated, value, field))
                    << key << ": the proto states " << stated << ", defaults.yaml "
                    << YAML::Dump(value);
                ++compared;
              });
  EXPECT_GT(compared, 60);
}

TEST(Defaults, FieldsWithoutAStatedDefaultAreEmpty) {
  const auto comments = FieldComments();
  ForEachLeaf(*v1::RunConfig::descriptor(), YAML::Load(kDefaultsYaml), "",
              [&](const FieldDescriptor& field, const YAML::Node& value, const std::string& key) {
                const std::string& comment =
                    comments.at(absl::StrCat(field.containing_type()->name(), ".", field.name()));
                if (!StatedDefault(comment).empty()) return;
                EXPECT_TRUE(field.is_repeated() ? value.size() == 0 : value.Scalar().empty())
                    << key;
              });
}

TEST(Defaults, AreValidAndComplete) {
  const auto loaded = LoadRunConfig({}, {"run_dir=r"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  v1::RunConfig expected = DefaultRunConfig();
  expected.set_run_dir("r");
  EXPECT_EQ(loaded->SerializeAsString(), expected.SerializeAsString());
}

}  // namespace
}  // namespace tandem::config
