// AttentionPlan: how attention over a paged cache is cut into pieces for a GPU. A piece is a tile
// of query rows of one sequence and a chunk of its keys; each is a block of the launch, for every
// KV head. Numbers alone, made on the host for each step.
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

struct AttentionGeometry {
  int64_t heads_per_kv_head = 1;
  int64_t block_size = 16;  // of the cache
  // Keys are cut where the tiles alone are fewer pieces than this, and then into no more: what
  // fills the device. 0: keys are never cut.
  int64_t wanted_pieces = 0;
};

// Rows of a tile are query rows: a token's heads of one KV head follow one another.
struct AttentionPlan {
  int64_t tile_rows = 16;  // 16, 64 or 128
  int64_t chunk = 0;       // keys of a piece, whole blocks; 0: all of a sequence

  std::vector<int32_t> slots;         // of each token: block * block_size + place in it
  std::vector<int32_t> row_sequence;  // of each token
  std::vector<int32_t> row_position;  // of each token
  std::vector<int32_t> row_starts;    // [sequences + 1]
  std::vector<int32_t> page_starts;   // [sequences + 1]
  std::vector<int32_t> pages;
  std::vector<int32_t> last_page_length;  // [sequences]

  // Of each piece.
  std::vector<int32_t> piece_sequence;
  std::vector<int32_t> piece_tile;
  std::vector<int32_t> piece_chunk;

  // A token has a partial result for each chunk of its sequence; they follow one another.
  std::vector<int32_t> partial_starts;  // [sequences + 1]
  std::vector<int32_t> merge_starts;    // [tokens + 1]

  int64_t num_tokens() const { return static_cast<int64_t>(row_sequence.size()); }
  int64_t num_sequences() const { return static_cast<int64_t>(last_page_length.size()); }
  int64_t num_pieces() const { return static_cast<int64_t>(piece_sequence.size()); }
  int64_t num_partials() const { return merge_starts.back(); }
};

// Sequences follow one another in the batch, each has a token at least.
AttentionPlan PlanAttention(absl::Span<const PagedSequence> sequences,
                            const AttentionGeometry& geometry);

// Tiles that one new token of a sequence takes where every sequence has one.
int64_t DecodeTiles(const AttentionGeometry& geometry);

// Most pieces, and most partial results, of a plan for so many sequences with one new token each.
int64_t MostDecodePieces(int64_t num_sequences, const AttentionGeometry& geometry);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ATTENTION_PLAN_H_
