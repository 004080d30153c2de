#include "common/tokenizer/vocabulary.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer {

absl::StatusOr<Vocabulary> Vocabulary::Read(const JsonNode& node) {
  RETURN_IF_ERROR(node.ExpectObject());
  Vocabulary vocabulary;
  vocabulary.tokens_.reserve(node.value().size());
  vocabulary.ids_.reserve(node.value().size());
  vocabulary.by_id_.reserve(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
    const bool fits = id.is_number_integer() && id.get<int64_t>() >= 0 &&
                      id.get<int64_t>() <= kMaxId &&
                      !(id.is_number_unsigned() && id.get<uint64_t>() > uint64_t{kMaxId});
    if (!fits) {
      return node.Error(absl::StrCat("token '", token, "' has the id ",
                                     id.is_primitive() ? id.dump() : id.type_name(),
                                     "; expected an integer from 0 to ", kMaxId));
    }
    vocabulary.tokens_.push_back(token);
    const std::string& stored = vocabulary.tokens_.back();
    const int32_t value = id.get<int32_t>();
    vocabulary.ids_.emplace(stored, value);
    const auto [other, inserted] = vocabulary.by_id_.emplace(value, &stored);
    if (!inserted) {
      return node.Error(
          absl::StrCat("tokens '", *other->second, "' and '", token, "' share the id ", value));
    }
  }
  return vocabulary;
}

std::optional<int32_t> Vocabulary::TokenToId(absl::string_view token) const {
  const auto it = ids_.find(token);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const std::string* Vocabulary::IdToToken(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

}  // namespace tandem::tokenizer
