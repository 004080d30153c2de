#include "common/tokenizer/vocabulary.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

Vocabulary Vocabulary::FromList(std::vector<std::string> tokens) {
  Vocabulary vocabulary;
  vocabulary.tokens_ = std::move(tokens);
  vocabulary.ids_.reserve(vocabulary.tokens_.size());
  vocabulary.by_id_.reserve(vocabulary.tokens_.size());
  int32_t id = 0;
  for (const std::string& token : vocabulary.tokens_) {
    vocabulary.ids_[token] = id;
    vocabulary.by_id_.emplace(id, &token);
    ++id;
  }
  return vocabulary;
}

std::array<int32_t, 256> Vocabulary::ByteTokenIds() const {
  std::array<int32_t, 256> ids;
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    ids[byte] = TokenToId(absl::StrFormat("<0x%02X>", byte)).value_or(-1);
  }
  return ids;
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
