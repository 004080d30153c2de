#include "common/model/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tandem::model {
namespace {

// Sequences whose blocks are numbered anyhow.
class Batch {
 public:
  Batch(const std::vector<std::pair<int64_t, int64_t>>& tokens_and_contexts, int64_t block_size) {
    int64_t row = 0;
    int32_t block = 1000;
    blocks_.reserve(tokens_and_contexts.size());
    for (const auto& [tokens, context] : tokens_and_contexts) {
      std::vector<int32_t>& blocks = blocks_.emplace_back();
      for (int64_t i = 0; i * block_size < context; ++i) blocks.push_back(block -= 3);
      sequences.push_back({.first_token = row,
                           .num_tokens = tokens,
                           .context_length = context,
                           .blocks = blocks.data()});
      row += tokens;
    }
  }
  std::vector<PagedSequence> sequences;

 private:
  std::vector<std::vector<int32_t>> blocks_;
};

// What FlashInfer's kernel makes of a plan: every key that a row sees is in one partial result of
// the row, and no partial result is another's.
void ExpectEveryKeyOnce(const AttentionPlan& plan, const Batch& batch,
                        const AttentionGeometry& geometry) {
  const int64_t group = geometry.heads_per_kv_head;
  std::map<int64_t, std::pair<int64_t, int64_t>> owner;  // of a partial result: row, chunk
  std::map<std::pair<int64_t, int64_t>, int64_t> keys;   // row and head of the group: keys seen
  for (int64_t piece = 0; piece < plan.num_pieces(); ++piece) {
    const int64_t s = plan.piece_sequence[piece];
    const PagedSequence& sequence = batch.sequences[s];
    const int64_t chunk = plan.piece_chunk[piece];
    const int64_t length = plan.chunk == 0 ? sequence.context_length : plan.chunk;
    const int64_t chunks = (sequence.context_length + length - 1) / length;
    ASSERT_LT(chunk, chunks);
    for (int64_t i = 0; i < plan.tile_rows; ++i) {
      const int64_t packed = plan.piece_tile[piece] * plan.tile_rows + i;
      const int64_t token = packed / group;
      if (token >= sequence.num_tokens) break;
      const int64_t row = plan.row_starts[s] + token;
      const int64_t visible = plan.row_position[row] + 1;
      const int64_t begin = std::min(visible, chunk * length);
      const int64_t end = std::min(visible, (chunk + 1) * length);
      keys[{row, packed % group}] += end - begin;
      const int64_t partial = plan.partial_starts[s] + token * chunks + chunk;
      EXPECT_GE(partial, plan.merge_starts[row]);
      EXPECT_LT(partial, plan.merge_starts[row + 1]);
      const auto [it, is_new] = owner.try_emplace(partial, row, chunk);
      EXPECT_EQ(it->second, std::make_pair(row, chunk));
    }
  }
  for (int64_t row = 0; row < plan.num_tokens(); ++row) {
    for (int64_t head = 0; head < group; ++head) {
      EXPECT_EQ((keys[{row, head}]), plan.row_position[row] + 1);
    }
  }
  EXPECT_EQ(static_cast<int64_t>(owner.size()), plan.num_partials());
}

TEST(AttentionPlan, FindsEachTokensPlaceInTheCache) {
  const Batch batch({{3, 20}, {1, 16}}, 16);
  const AttentionPlan plan = PlanAttention(batch.sequences, {.block_size = 16});
  EXPECT_EQ(plan.row_position, (std::vector<int32_t>{17, 18, 19, 15}));
  EXPECT_EQ(plan.row_sequence, (std::vector<int32_t>{0, 0, 0, 1}));
  EXPECT_EQ(plan.row_starts, (std::vector<int32_t>{0, 3, 4}));
  EXPECT_EQ(plan.pages, (std::vector<int32_t>{997, 994, 991}));
  EXPECT_EQ(plan.page_starts, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(plan.last_page_length, (std::vector<int32_t>{4, 16}));
  EXPECT_EQ(plan.slots,
            (std::vector<int32_t>{994 * 16 + 1, 994 * 16 + 2, 994 * 16 + 3, 991 * 16 + 15}));
}

TEST(AttentionPlan, EveryKeyIsInOnePiece) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  };
  for (int i = 0; i < 200; ++i) {
    std::vector<std::pair<int64_t, int64_t>> sizes;
    const bool decodes = i % 2 == 0;
    for (int64_t s = 1 + below(9); s > 0; --s) {
      const int64_t tokens = decodes ? 1 : 1 + below(300);
      sizes.emplace_back(tokens, tokens + below(i % 5 == 0 ? 20 : 3000));
    }
    AttentionGeometry geometry;
    geometry.heads_per_kv_head = 1 + below(20);
    geometry.block_size = 16 * (1 + below(4));
    geometry.wanted_pieces = below(4) == 0 ? 0 : 1 + below(200);
    static constexpr int64_t kOtherTiles[] = {16, 32, 64};
    if (i % 3 == 0) geometry.tiles = kOtherTiles;
    const Batch batch(sizes, geometry.block_size);
    const AttentionPlan plan = PlanAttention(batch.sequences, geometry);
    ExpectEveryKeyOnce(plan, batch, geometry);
    if (decodes) {
      EXPECT_LE(plan.num_pieces(), MostDecodePieces(plan.num_sequences(), geometry));
      EXPECT_LE(plan.num_partials(), MostDecodePieces(plan.num_sequences(), geometry));
      EXPECT_EQ(plan.tile_rows * DecodeTiles(geometry) >= geometry.heads_per_kv_head, true);
      EXPECT_EQ(plan.tile_rows, TileRows(geometry.heads_per_kv_head, geometry));
      if (plan.num_sequences() * DecodeTiles(geometry) >= geometry.wanted_pieces) {
        EXPECT_EQ(plan.chunk, 0);
      }
    }
    if (plan.chunk > 0) {
      EXPECT_LE(plan.num_pieces(), geometry.wanted_pieces);
      EXPECT_EQ(plan.chunk % geometry.block_size, 0);
      // What the attention reserves for partial results of prompts.
      EXPECT_LE(plan.num_partials() * geometry.heads_per_kv_head,
                geometry.wanted_pieces * geometry.tiles.back());
    }
  }
}

TEST(AttentionPlan, ALongSequenceAloneFillsTheDevice) {
  const Batch batch({{1, 30000}}, 16);
  const AttentionPlan plan =
      PlanAttention(batch.sequences, {.heads_per_kv_head = 7, .wanted_pieces = 132});
  EXPECT_GT(plan.num_pieces(), 66);
  EXPECT_LE(plan.num_pieces(), 132);
}

}  // namespace
}  // namespace tandem::model
