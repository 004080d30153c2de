#include "services/rollout/openai/json_body.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::rollout::openai {
namespace {

// Deeper than any request; recursion over it stays small.
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxContainers = 100000;

struct Shape {
  int depth = 0;
  int64_t num_containers = 0;
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
    } else if (c == '{' || c == '[') {
      ++shape.num_containers;
      shape.depth = std::max(shape.depth, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
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
  try {
    nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(body);
    if (parsed.is_object()) return parsed;
  } catch (const nlohmann::ordered_json::out_of_range& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body holds a number that is too large: ", error.what()));
  } catch (const nlohmann::ordered_json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("the body is not valid JSON: ", error.what()));
  }
  return absl::InvalidArgumentError("expected a JSON object as the body");
}

}  // namespace tandem::rollout::openai
