#include "tools/tandem/dataset/row_keys.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/nearest.h"

namespace tandem::dataset {
namespace {

using nlohmann::json;

// A row with more keys than a reader can take in shows the first of them.
constexpr size_t kMaxShownKeys = 24;

// The row's keys, and those of its objects with a dot.
std::vector<std::string> KeysOf(const json& row) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) {
    keys.push_back(key);
    if (!value.is_object()) continue;
    for (const auto& [inner, unused] : value.items()) keys.push_back(absl::StrCat(key, ".", inner));
  }
  return keys;
}

template <typename Json>
const Json* Find(const Json& row, absl::string_view key) {
  if (!row.is_object()) return nullptr;
  const auto found = row.find(std::string(key));
  if (found != row.end()) return &*found;
  for (size_t dot = key.find('.'); dot != absl::string_view::npos; dot = key.find('.', dot + 1)) {
    const auto outer = row.find(std::string(key.substr(0, dot)));
    if (outer == row.end()) continue;
    if (const Json* inner = Find(*outer, key.substr(dot + 1)); inner != nullptr) return inner;
  }
  return nullptr;
}

}  // namespace

const json* FindKey(const json& row, absl::string_view key) { return Find(row, key); }

const nlohmann::ordered_json* FindKey(const nlohmann::ordered_json& row, absl::string_view key) {
  return Find(row, key);
}

absl::Status MissingKey(const json& row, absl::string_view key, absl::string_view setting) {
  std::vector<std::string> keys = KeysOf(row);
  const std::string nearest = config::Nearest(key, keys);
  const size_t total = keys.size();
  if (total > kMaxShownKeys) keys.resize(kMaxShownKeys);
  return absl::InvalidArgumentError(absl::StrCat(
      "expected the key '", key, "' (", setting, "), found ",
      keys.empty() ? "no key" : absl::StrJoin(keys, ", "),
      total > kMaxShownKeys ? absl::StrCat(" and ", total - kMaxShownKeys, " more") : "",
      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
}

absl::StatusOr<std::string> TextOf(const json& value, absl::string_view key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected text, found ",
                   value.is_null() ? "null" : absl::StrCat("an ", value.type_name())));
}

}  // namespace tandem::dataset
