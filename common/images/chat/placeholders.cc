#include "common/images/chat/placeholders.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

// Runs of placeholders as images: those of a multiple of `count` are of so many, unless each run is one of
// the `num_images`.
std::vector<PlacedPlaceholders> Split(const std::vector<PlacedPlaceholders>& runs, int64_t count,
                                      size_t num_images) {
  std::vector<PlacedPlaceholders> images;
  for (const PlacedPlaceholders& run : runs) {
    const int64_t size = run.grid.count();
    const int64_t each = size % count == 0 ? count : size;
    for (int64_t begin = run.begin; begin < run.end; begin += each) {
      images.push_back({begin, begin + each, {1, each}});
    }
  }
  return images.size() != num_images && runs.size() == num_images ? runs : images;
}

// Those of FindPlaceholders() where tiles have texts.
std::vector<PlacedPlaceholders> FindTiles(const PlaceholderIds& ids,
                                          absl::Span<const uint32_t> token_ids) {
  const TileIds& tiles = *ids.tiles;
  const auto is_placeholder = [&](size_t i) {
    return i < token_ids.size() && token_ids[i] == static_cast<uint32_t>(ids.placeholder);
  };
  std::vector<PlacedPlaceholders> found;
  // The tile that ended last of an image whose whole is still to come.
  struct Tile {
    int64_t row;
    int64_t column;
  };
  std::optional<Tile> last;
  for (size_t begin = 0; begin < token_ids.size();) {
    if (!is_placeholder(begin)) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (is_placeholder(end)) ++end;
    const absl::Span<const uint32_t> before = token_ids.subspan(0, begin);
    const auto is_named = [&](const std::vector<int32_t>& name) {
      return EndsWith(before, *ids.start, name);
    };
    const auto is_tile = [&](Tile tile) {
      return tile.row < tiles.max_side && tile.column < tiles.max_side &&
             is_named(tiles.At(tile.row, tile.column));
    };
    std::optional<Tile> next;
    bool is_whole = false;
    if (last.has_value()) {
      const int64_t across = found.back().grid.tiles_across;
      const bool ends_line = last->column + 1 == across;
      const Tile beside = {last->row, last->column + 1};
      const Tile below = {last->row + 1, 0};
      if ((last->row == 0 || !ends_line) && is_tile(beside)) next = beside;
      if (ends_line && is_tile(below)) next = below;
      is_whole = is_named(tiles.whole);
    }
    if (is_whole || next.has_value()) {
      PlacedPlaceholders& image = found.back();
      ++image.grid.rows;
      image.end = static_cast<int64_t>(end);
      if (next.has_value() && next->row == 0) image.grid.tiles_across = next->column + 1;
    } else {
      if (is_tile({0, 0})) next = {0, 0};
      const PlaceholderGrid grid{1, static_cast<int64_t>(end - begin), next.has_value() ? 1 : 0};
      found.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(end), grid});
    }
    last = next;
    begin = end;
  }
  return found;
}

}  // namespace

absl::StatusOr<PlaceholderIds> FindPlaceholderIds(int32_t placeholder,
                                                  const PlaceholderTexts& texts,
                                                  const IdOfToken& id_of,
                                                  const EncodeText& encode) {
  PlaceholderIds ids{.placeholder = placeholder,
                     .fixed_count = texts.fixed_count,
                     .count_among_others = texts.count_among_others,
                     .written = texts.written,
                     .written_out = texts.written_out};
  if (!texts.written.empty() && id_of(texts.placeholder) != placeholder) {
    return absl::FailedPreconditionError(
        absl::StrCat("the tokenizer has no token ", texts.placeholder, " with the id ", placeholder,
                     ", which stands for images; take the tokenizer.json of this model"));
  }
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
  if (texts.tiles.has_value()) {
    const TileBounds bounds{texts.placeholder, placeholder, texts.start, *ids.start};
    ASSIGN_OR_RETURN(TileIds tiles, FindTileIds(*texts.tiles, bounds, encode));
    ids.tiles = std::make_shared<const TileIds>(std::move(tiles));
  }
  return ids;
}

std::string TextForTokens(const PlaceholderIds& ids, const std::string& text) {
  if (ids.written.empty()) return text;
  return absl::StrReplaceAll(text, {{ids.written, ids.written_out}});
}

void AppendPlaceholders(const PlaceholderIds& ids, const PlaceholderGrid& grid,
                        std::vector<int32_t>* out) {
  if (ids.start.has_value()) out->push_back(*ids.start);
  const auto append = [out](const std::vector<int32_t>& text) {
    out->insert(out->end(), text.begin(), text.end());
  };
  for (int64_t row = 0; row < grid.rows; ++row) {
    if (ids.tiles != nullptr) {
      const int64_t across = grid.tiles_across;
      if (row > 0) {
        const bool ends_line = row % across == 0;
        if (ends_line) append(row + 1 == grid.rows ? ids.tiles->last_line : ids.tiles->line);
        out->push_back(*ids.start);
      }
      append(row + 1 == grid.rows ? ids.tiles->whole : ids.tiles->At(row / across, row % across));
    } else if (row > 0 && ids.line_break.has_value()) {
      out->push_back(*ids.line_break);
    }
    out->insert(out->end(), static_cast<size_t>(grid.columns), ids.placeholder);
  }
  if (ids.end.has_value()) out->push_back(*ids.end);
}

std::vector<PlacedPlaceholders> FindPlaceholders(const PlaceholderIds& ids,
                                                 absl::Span<const uint32_t> token_ids,
                                                 size_t num_images) {
  if (ids.tiles != nullptr) return FindTiles(ids, token_ids);
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
  return ids.count_among_others > 0 ? Split(found, ids.count_among_others, num_images) : found;
}

}  // namespace tandem::images
