#include "common/tokenizer/charsmap.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/growth.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr size_t kWordBytes = 4;

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = kWordBytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The fields of a unit. One with a leaf has a key that ends behind its byte; the unit that it leads
// to then holds the value.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t LeafValue(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & 1 << 9) >> 6); }

absl::Status Damaged(absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.json: precompiled_charsmap is damaged: ", problem,
                   "; take the file from the model's folder again"));
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Parse(absl::string_view blob) {
  if (blob.size() < kWordBytes) return Damaged("it is shorter than its header");
  const size_t trie_bytes = LittleEndian(blob);
  blob.remove_prefix(kWordBytes);
  if (trie_bytes == 0 || trie_bytes % kWordBytes != 0 || trie_bytes > blob.size()) {
    return Damaged(
        absl::StrCat("a trie of ", trie_bytes, " bytes in ", blob.size(), " bytes of data"));
  }
  Charsmap map;
  map.units_.reserve(trie_bytes / kWordBytes);
  for (size_t i = 0; i < trie_bytes; i += kWordBytes) {
    map.units_.push_back(LittleEndian(blob.substr(i)));
  }
  map.table_ = std::string(blob.substr(trie_bytes));
  if (ValidUtf8Prefix(map.table_) != map.table_.size()) {
    return Damaged("its strings are not UTF-8");
  }
  return map;
}

absl::StatusOr<std::optional<absl::string_view>> Charsmap::Find(absl::string_view text) const {
  std::optional<absl::string_view> none;
  uint32_t node = Offset(units_[0]);
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return none;  // ends a key
    node ^= byte;
    if (node >= units_.size()) return Damaged("its trie points outside of itself");
    const uint32_t unit = units_[node];
    if (Label(unit) != byte) return none;
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) return Damaged("its trie points outside of itself");
    const size_t begin = LeafValue(units_[node]);
    const bool inside_character =
        begin < table_.size() && (static_cast<unsigned char>(table_[begin]) & 0xC0) == 0x80;
    if (begin > table_.size() || inside_character) {
      return Damaged("a replacement lies outside of its strings");
    }
    const size_t end = std::min(table_.find('\0', begin), table_.size());
    return std::optional(absl::string_view(table_).substr(begin, end - begin));
  }
  return none;
}

absl::StatusOr<std::string> Charsmap::Normalize(absl::string_view text, size_t max_bytes) const {
  constexpr size_t kMaxKeyGrapheme = 5;  // bytes
  std::string out;
  out.reserve(text.size());
  const auto append = [&](absl::string_view part) {
    if (part.size() > max_bytes - out.size()) {
      return TooMuchText("normalizer Precompiled", max_bytes);
    }
    out.append(part.data(), part.size());
    return absl::OkStatus();
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = GraphemeEnd(text, begin);
    if (end - begin <= kMaxKeyGrapheme) {
      ASSIGN_OR_RETURN(const auto replacement, Find(text.substr(begin, end - begin)));
      if (replacement.has_value()) {
        RETURN_IF_ERROR(append(*replacement));
        begin = end;
        continue;
      }
    }
    for (size_t length; begin < end; begin += length) {
      DecodeAt(text, begin, &length);
      const absl::string_view character = text.substr(begin, length);
      ASSIGN_OR_RETURN(const auto replacement, Find(character));
      RETURN_IF_ERROR(append(replacement.value_or(character)));
    }
  }
  return out;
}

}  // namespace tandem::tokenizer
