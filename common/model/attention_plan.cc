#include "common/model/attention_plan.h"

#include <algorithm>

namespace tandem::model {
namespace {

// The minimum number of keys that justify a piece of their own.
constexpr int64_t kLeastChunk = 128;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t NumPieces(absl::Span<const PagedSequence> sequences, int64_t group, int64_t tile_rows,
                  int64_t chunk) {
  int64_t pieces = 0;
  for (const PagedSequence& s : sequences) {
    pieces += CeilDiv(s.num_tokens * group, tile_rows) * CeilDiv(s.context_length, chunk);
  }
  return pieces;
}

// Returns the shortest chunk that yields no more pieces than wanted; 0 if keys stay whole.
int64_t ChunkOf(absl::Span<const PagedSequence> sequences, const AttentionGeometry& geometry,
                int64_t tile_rows) {
  int64_t longest = 0;
  for (const PagedSequence& s : sequences) longest = std::max(longest, s.context_length);
  const int64_t unit = CeilDiv(kLeastChunk, geometry.block_size) * geometry.block_size;
  const auto fits = [&](int64_t units) {
    return NumPieces(sequences, geometry.heads_per_kv_head, tile_rows, units * unit) <=
           geometry.wanted_pieces;
  };
  int64_t low = 1;
  int64_t high = CeilDiv(longest, unit);  // whole
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low * unit >= longest ? 0 : low * unit;
}

}  // namespace

int64_t TileRows(int64_t rows, const AttentionGeometry& geometry) {
  for (const int64_t tile : geometry.tiles) {
    if (rows <= tile) return tile;
  }
  return geometry.tiles.back();
}

int64_t DecodeTiles(const AttentionGeometry& geometry) {
  const int64_t rows = geometry.heads_per_kv_head;
  return CeilDiv(rows, TileRows(rows, geometry));
}

int64_t MostDecodePieces(int64_t num_sequences, const AttentionGeometry& geometry) {
  return std::max(num_sequences * DecodeTiles(geometry), geometry.wanted_pieces);
}

AttentionPlan PlanAttention(absl::Span<const PagedSequence> sequences,
                            const AttentionGeometry& geometry) {
  AttentionPlan plan;
  const int64_t group = geometry.heads_per_kv_head;
  int64_t num_tokens = 0;
  for (const PagedSequence& s : sequences) num_tokens += s.num_tokens;
  if (!sequences.empty()) {
    plan.tile_rows =
        TileRows(num_tokens * group / static_cast<int64_t>(sequences.size()), geometry);
    if (geometry.wanted_pieces > 0) plan.chunk = ChunkOf(sequences, geometry, plan.tile_rows);
  }
  plan.slots.reserve(num_tokens);
  plan.row_sequence.reserve(num_tokens);
  plan.row_position.reserve(num_tokens);
  const bool sees_ahead = std::any_of(sequences.begin(), sequences.end(),
                                      [](const auto& s) { return s.seen_ends != nullptr; });
  if (sees_ahead) plan.row_last_key.reserve(num_tokens);
  plan.row_starts = {0};
  plan.page_starts = {0};
  plan.partial_starts = {0};
  plan.merge_starts = {0};
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PagedSequence& s = sequences[i];
    const auto sequence = static_cast<int32_t>(i);
    const int64_t num_pages = CeilDiv(s.context_length, geometry.block_size);
    plan.pages.insert(plan.pages.end(), s.blocks, s.blocks + num_pages);
    plan.page_starts.push_back(static_cast<int32_t>(plan.pages.size()));
    plan.last_page_length.push_back(
        static_cast<int32_t>(s.context_length - (num_pages - 1) * geometry.block_size));
    for (int64_t t = 0; t < s.num_tokens; ++t) {
      const int64_t position = s.context_length - s.num_tokens + t;
      plan.row_sequence.push_back(sequence);
      plan.row_position.push_back(static_cast<int32_t>(position));
      if (sees_ahead) {
        const int64_t last = s.seen_ends == nullptr ? position : s.seen_ends[t] - 1;
        plan.row_last_key.push_back(static_cast<int32_t>(last));
      }
      plan.slots.push_back(
          static_cast<int32_t>(s.blocks[position / geometry.block_size] * geometry.block_size +
                               position % geometry.block_size));
    }
    plan.row_starts.push_back(static_cast<int32_t>(plan.row_sequence.size()));

    const int64_t tiles = CeilDiv(s.num_tokens * group, plan.tile_rows);
    const int64_t chunks = plan.chunk == 0 ? 1 : CeilDiv(s.context_length, plan.chunk);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        plan.piece_sequence.push_back(sequence);
        plan.piece_tile.push_back(static_cast<int32_t>(tile));
        plan.piece_chunk.push_back(static_cast<int32_t>(chunk));
      }
    }
    for (int64_t t = 0; t < s.num_tokens; ++t) {
      plan.merge_starts.push_back(plan.merge_starts.back() + static_cast<int32_t>(chunks));
    }
    plan.partial_starts.push_back(plan.merge_starts.back());
  }
  return plan;
}

}  // namespace tandem::model
