// AttentionPlan: how attention over a paged cache is split into pieces for a GPU. A piece is a tile
// of query rows of one sequence and a chunk of its keys; each piece is one block of the launch for
// every KV head. The plan holds numbers only; the host makes it for each step.
//
//   AttentionPlan plan = PlanAttention(sequences, {.heads_per_kv_head = 7, .block_size = 16,
//                                                  .wanted_pieces = 132});
#ifndef TANDEM_COMMON_MODEL_ATTENTION_PLAN_H_
#define TANDEM_COMMON_MODEL_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/paged_attention.h"

namespace tandem::model {

// Rows of FlashInfer's query tiles; small ones waste less on the few rows of decoding.
inline constexpr int64_t kFlashInferTiles[] = {16, 64, 128};

struct AttentionGeometry {
  int64_t heads_per_kv_head = 1;
  int64_t block_size = 16;  // tokens of a cache block
  // Pieces that fill the device. Keys are split into chunks only if the tiles alone are fewer than
  // this, and never into more pieces than this. 0: keys are never split.
  int64_t wanted_pieces = 0;
  absl::Span<const int64_t> tiles =
      kFlashInferTiles;  // rows of those that the kernel has, ascending
};

// Rows of a tile are query rows: the heads of a token that share one KV head are adjacent.
struct AttentionPlan {
  int64_t tile_rows = 16;  // one of the geometry's
  int64_t chunk = 0;       // keys per piece, whole blocks; 0: all keys of a sequence

  std::vector<int32_t> slots;         // [tokens]: block * block_size + offset in block
  std::vector<int32_t> row_sequence;  // [tokens]
  std::vector<int32_t> row_position;  // [tokens]
  // [tokens]: the last position that each sees; empty if all see up to themselves.
  std::vector<int32_t> row_last_key;
  std::vector<int32_t> row_starts;   // [sequences + 1]
  std::vector<int32_t> page_starts;  // [sequences + 1]
  std::vector<int32_t> pages;
  std::vector<int32_t> last_page_length;  // [sequences]

  // One entry per piece.
  std::vector<int32_t> piece_sequence;
  std::vector<int32_t> piece_tile;
  std::vector<int32_t> piece_chunk;

  // A token has one partial result per chunk of its sequence, stored consecutively.
  std::vector<int32_t> partial_starts;  // [sequences + 1]
  std::vector<int32_t> merge_starts;    // [tokens + 1]

  int64_t num_tokens() const { return static_cast<int64_t>(row_sequence.size()); }
  int64_t num_sequences() const { return static_cast<int64_t>(last_page_length.size()); }
  int64_t num_pieces() const { return static_cast<int64_t>(piece_sequence.size()); }
  int64_t num_partials() const { return merge_starts.back(); }
};

// Plans for sequences that follow one another in the batch, each with at least one token.
AttentionPlan PlanAttention(absl::Span<const PagedSequence> sequences,
                            const AttentionGeometry& geometry);

// Rows of the tile for so many query rows: the smallest that has them all, or the largest.
int64_t TileRows(int64_t rows, const AttentionGeometry& geometry);

// Tiles per sequence when every sequence has one new token.
int64_t DecodeTiles(const AttentionGeometry& geometry);

// The maximum number of pieces, and of partial results, of a plan for this many sequences with one
// new token each.
int64_t MostDecodePieces(int64_t num_sequences, const AttentionGeometry& geometry);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ATTENTION_PLAN_H_
