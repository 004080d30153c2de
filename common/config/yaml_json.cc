#include "common/config/yaml_json.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/text/utf8.h"

namespace tandem::config {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxDepth = 32;
constexpr int kMaxNodes = 10000;

ordered_json ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer)) return integer;
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return number;
  bool flag = false;
  if (YAML::convert<bool>::decode(node, flag)) return flag;  // true, no, on, ...
  return text;
}

class Converter {
 public:
  // Sets `*out`, or returns a problem.
  std::string Convert(const YAML::Node& node, int depth, ordered_json* out) {
    if (depth > kMaxDepth || ++num_nodes_ > kMaxNodes) {
      return absl::StrCat("expected a mapping of at most ", kMaxNodes, " values, ", kMaxDepth,
                          " deep, found a larger one");
    }
    std::string problem;
    if (node.IsMap()) {
      *out = ordered_json::object();
      for (const auto& entry : node) {
        if (!entry.first.IsScalar()) return "expected a key, found a list or section";
        const std::string& key = entry.first.Scalar();
        if (!text::IsUtf8(key)) return "expected UTF-8, found other bytes";
        if (out->contains(key)) return absl::StrCat("the key '", key, "' is stated twice");
        problem = Convert(entry.second, depth + 1, &(*out)[key]);
        if (!problem.empty()) return problem;
      }
    } else if (node.IsSequence()) {
      *out = ordered_json::array();
      for (const auto& element : node) {
        problem = Convert(element, depth + 1, &out->emplace_back());
        if (!problem.empty()) return problem;
      }
    } else if (node.IsScalar()) {
      if (!text::IsUtf8(node.Scalar())) return "expected UTF-8, found other bytes";
      *out = ScalarToJson(node);
    }
    return "";  // null stays null
  }

 private:
  int num_nodes_ = 0;
};

}  // namespace

std::string YamlToJson(const YAML::Node& mapping, std::string* json) {
  ordered_json value;
  const std::string problem = Converter().Convert(mapping, 0, &value);
  if (problem.empty()) *json = value.dump();
  return problem;
}

}  // namespace tandem::config
