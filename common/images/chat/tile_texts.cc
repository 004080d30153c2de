#include "common/images/chat/tile_texts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

// The ids of a text between two tokens.
absl::StatusOr<std::vector<int32_t>> IdsBetween(const std::string& before, int32_t before_id,
                                                const std::string& text, const std::string& behind,
                                                int32_t behind_id, const EncodeText& encode) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, encode(absl::StrCat(before, text, behind)));
  if (ids.size() > 2 && ids.front() == before_id && ids.back() == behind_id) {
    return std::vector<int32_t>(ids.begin() + 1, ids.end() - 1);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the tokenizer does not keep ", before, " and ", behind,
                   " apart from text between them, as prompts with images have them; take the "
                   "tokenizer.json of this model"));
}

}  // namespace

absl::StatusOr<TileIds> FindTileIds(const TileTexts& texts, const TileBounds& bounds,
                                    const EncodeText& encode) {
  const auto name = [&](const std::string& text) {
    return IdsBetween(bounds.start, bounds.start_id, text, bounds.placeholder,
                      bounds.placeholder_id, encode);
  };
  const auto line = [&](const std::string& text) {
    return IdsBetween(bounds.placeholder, bounds.placeholder_id, text, bounds.start,
                      bounds.start_id, encode);
  };
  TileIds ids{.max_side = texts.max_side};
  ASSIGN_OR_RETURN(ids.whole, name(texts.whole));
  ASSIGN_OR_RETURN(ids.line, line("\n"));
  ASSIGN_OR_RETURN(ids.last_line, line("\n\n"));
  for (int64_t row = 1; row <= texts.max_side; ++row) {
    for (int64_t column = 1; column <= texts.max_side; ++column) {
      ASSIGN_OR_RETURN(ids.names.emplace_back(),
                       name(absl::StrCat("<row_", row, "_col_", column, ">")));
    }
  }
  return ids;
}

bool EndsWith(absl::Span<const uint32_t> tokens, int32_t start, const std::vector<int32_t>& name) {
  if (tokens.size() <= name.size()) return false;
  const absl::Span<const uint32_t> end = tokens.subspan(tokens.size() - name.size() - 1);
  return end.front() == static_cast<uint32_t>(start) &&
         std::equal(name.begin(), name.end(), end.begin() + 1,
                    [](int32_t a, uint32_t b) { return static_cast<uint32_t>(a) == b; });
}

}  // namespace tandem::images
