#include "common/images/chat/placeholders.h"

#include "absl/strings/str_cat.h"

namespace tandem::images {

absl::StatusOr<PlaceholderIds> FindPlaceholderIds(int32_t placeholder,
                                                  const PlaceholderTexts& texts,
                                                  const IdOfToken& id_of) {
  PlaceholderIds ids{.placeholder = placeholder, .fixed_count = texts.fixed_count};
  for (const auto& [text, id] :
       {std::pair(&texts.start, &ids.start), std::pair(&texts.line_break, &ids.line_break),
        std::pair(&texts.end, &ids.end)}) {
    if (text->empty()) continue;
    *id = id_of(*text);
    if (id->has_value()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the tokenizer has no token ", *text,
                     ", which a prompt has beside the placeholders of each image; take the "
                     "tokenizer.json of this model"));
  }
  return ids;
}

void AppendPlaceholders(const PlaceholderIds& ids, const PlaceholderGrid& grid,
                        std::vector<int32_t>* out) {
  if (ids.start.has_value()) out->push_back(*ids.start);
  for (int64_t row = 0; row < grid.rows; ++row) {
    if (row > 0 && ids.line_break.has_value()) out->push_back(*ids.line_break);
    out->insert(out->end(), static_cast<size_t>(grid.columns), ids.placeholder);
  }
  if (ids.end.has_value()) out->push_back(*ids.end);
}

std::vector<PlacedPlaceholders> FindPlaceholders(const PlaceholderIds& ids,
                                                 absl::Span<const uint32_t> token_ids) {
  const auto is = [](uint32_t token, std::optional<int32_t> id) {
    return id.has_value() && token == static_cast<uint32_t>(*id);
  };
  std::vector<PlacedPlaceholders> found;
  bool is_open = false;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (is(token_ids[i], ids.placeholder)) {
      if (!is_open || found.back().grid.count() == ids.fixed_count) {
        found.push_back({at, at, {1, 0}});
      }
      PlacedPlaceholders& image = found.back();
      image.end = at + 1;
      if (image.grid.rows == 1) ++image.grid.columns;
      is_open = true;
    } else if (is_open && is(token_ids[i], ids.line_break)) {
      ++found.back().grid.rows;
    } else {
      is_open = false;
    }
  }
  return found;
}

}  // namespace tandem::images
