#include "services/rollout/openai/json_body.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem::rollout::openai {
namespace {

// Deeper than any request; recursion over it stays small.
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxContainers = 100000;
// Names and texts. Each takes 60 bytes or more besides its own.
constexpr int64_t kMaxStrings = 200000;
// Numbers are token ids, so that there may be more of them.
constexpr int64_t kMaxValues = 4000000;
// Names of one object: it keeps their order, and so compares each with all others.
constexpr int64_t kMaxNames = 1024;

// Counts more rather than less for text that is not JSON.
struct Shape {
  int depth = 0;
  int64_t num_containers = 0;
  int64_t num_strings = 0;
  int64_t num_values = 0;
  int64_t most_names = 0;  // of one object
};

Shape ShapeOf(std::string_view text) {
  Shape shape;
  int depth = 0;
  bool in_string = false;
  // Colons so far in the open containers.
  std::array<int64_t, kMaxDepth + 1> names{};
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
      names[depth] = 0;
    } else if (c == '}' || c == ']') {
      // The parser refuses an end without a beginning.
      if (--depth < 0) return shape;
    } else if (c == ':') {
      shape.most_names = std::max(shape.most_names, ++names[depth]);
    } else if (c == ',') {
      ++shape.num_values;
    }
  }
  return shape;
}

// The parser's text repeats what it read last, which may be a string of megabytes.
absl::string_view Beginning(const nlohmann::ordered_json::exception& error) {
  return absl::string_view(error.what()).substr(0, 400);
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
  if (shape.most_names > kMaxNames) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body has an object with more than ", kMaxNames, " names"));
  }
  try {
    nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(body);
    if (parsed.is_object()) return parsed;
  } catch (const nlohmann::ordered_json::out_of_range& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body holds a number that is too large: ", Beginning(error)));
  } catch (const nlohmann::ordered_json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not valid JSON: ", Beginning(error)));
  }
  return absl::InvalidArgumentError("expected a JSON object as the body");
}

}  // namespace tandem::rollout::openai
