#include "services/rollout/openai/json_body.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"

namespace tandem::rollout::openai {
namespace {

// Deeper than any request; recursion over it stays small.
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxContainers = 100000;
// Names and texts. Each takes 60 bytes or more besides its own.
constexpr int64_t kMaxStrings = 200000;
// Numbers are token ids, so that there may be more of them.
constexpr int64_t kMaxValues = 4000000;

// Counts more rather than less for text that is not JSON.
struct Shape {
  int depth = 0;
  int64_t num_containers = 0;
  int64_t num_strings = 0;
  int64_t num_values = 0;
};

Shape ShapeOf(std::string_view text) {
  Shape shape;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
      ++shape.num_strings;
    } else if (c == '{' || c == '[') {
      ++shape.num_containers;
      shape.depth = std::max(shape.depth, ++depth);
      if (depth > kMaxDepth) return shape;
    } else if (c == '}' || c == ']') {
      // The parser refuses an end without a beginning.
      if (--depth < 0) return shape;
    } else if (c == ',') {
      ++shape.num_values;
    }
  }
  return shape;
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseJsonBody(std::string_view body) {
  const Shape shape = ShapeOf(body);
  if (shape.depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body nests deeper than ", kMaxDepth, " levels"));
  }
  if (shape.num_containers > kMaxContainers) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body has more than ", kMaxContainers, " objects and arrays"));
  }
  if (shape.num_strings > kMaxStrings) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body has more than ", kMaxStrings, " texts and names"));
  }
  if (shape.num_values > kMaxValues) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body has more than ", kMaxValues, " values"));
  }
  absl::StatusOr<nlohmann::ordered_json> parsed = io::ParseOrderedJson({body.data(), body.size()});
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not valid JSON: ", parsed.status().message()));
  }
  if (parsed->is_object()) return parsed;
  return absl::InvalidArgumentError("expected a JSON object as the body");
}

}  // namespace tandem::rollout::openai
