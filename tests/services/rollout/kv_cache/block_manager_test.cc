#include "services/rollout/kv_cache/block_manager.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tandem::rollout {
namespace {

std::vector<int32_t> Tokens(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Computes and publishes the full blocks of a prompt, and gives them back.
std::vector<int32_t> Fill(BlockManager& blocks, const std::vector<int32_t>& tokens) {
  BlockHash hash = blocks.root();
  std::vector<int32_t> ids;
  const int64_t size = blocks.block_size();
  for (int64_t i = 0; (i + 1) * size <= static_cast<int64_t>(tokens.size()); ++i) {
    hash = ChainHash(hash, absl::MakeConstSpan(tokens).subspan(i * size, size));
    ids.push_back(*blocks.Allocate());
    blocks.Publish(ids.back(), hash);
  }
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) blocks.Release(*id);
  return ids;
}

TEST(BlockManagerTest, GivesEachBlockOnceAndAgainWhenItIsReleased) {
  BlockManager blocks(2, 4);
  const int32_t a = *blocks.Allocate();
  const int32_t b = *blocks.Allocate();
  EXPECT_NE(a, b);
  EXPECT_FALSE(blocks.Allocate().has_value());
  blocks.Release(a);
  EXPECT_EQ(blocks.num_free(), 1);
  EXPECT_EQ(*blocks.Allocate(), a);
}

TEST(BlockManagerTest, ASharedBlockIsFreeWhenItsLastHolderReleasesIt) {
  BlockManager blocks(1, 4);
  const int32_t a = *blocks.Allocate();
  blocks.Retain(a);
  EXPECT_TRUE(blocks.IsShared(a));
  blocks.Release(a);
  EXPECT_FALSE(blocks.IsShared(a));
  EXPECT_EQ(blocks.num_free(), 0);
  blocks.Release(a);
  EXPECT_EQ(blocks.num_free(), 1);
}

TEST(BlockHashesTest, HashesEachBlockOnceForEachRoot) {
  const BlockHash root = RootHash("m", 1, ""), other = RootHash("m", 2, "");
  std::vector<int32_t> tokens = Tokens(8);
  BlockHashes hashes;
  const BlockHash second = hashes.At(root, tokens, 4, 1);
  EXPECT_EQ(second, ChainHash(ChainHash(root, Tokens(4)), Tokens(4, 4)));
  tokens[0] = 99;  // is not read again
  EXPECT_EQ(hashes.At(root, tokens, 4, 1), second);
  EXPECT_EQ(hashes.At(other, tokens, 4, 0), ChainHash(other, absl::MakeSpan(tokens).first(4)));
}

TEST(BlockHashesTest, AnImageChangesTheHashesFromItsBlockOn) {
  const BlockHash root = RootHash("m", 1, "");
  const std::vector<int32_t> tokens = Tokens(16);
  const auto hashes_of = [&](std::vector<TokenDigest> digests) {
    BlockHashes hashes;
    hashes.SetDigests(std::move(digests));
    std::vector<BlockHash> out;
    for (int64_t i = 0; i < 4; ++i) out.push_back(hashes.At(root, tokens, 4, i));
    return out;
  };
  const auto plain = hashes_of({});
  const auto first = hashes_of({{.token = 5, .digest = {1, 2}}});
  const auto again = hashes_of({{.token = 5, .digest = {1, 2}}});
  const auto other = hashes_of({{.token = 5, .digest = {1, 3}}});
  const auto second = hashes_of({{.token = 5, .digest = {1, 2}}, {.token = 12, .digest = {4, 5}}});

  EXPECT_EQ(first, again);
  for (const auto* hashes : {&first, &other, &second}) EXPECT_EQ((*hashes)[0], plain[0]);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_NE(first[i], plain[i]) << i;
    EXPECT_NE(first[i], other[i]) << i;
  }
  EXPECT_EQ(second[2], first[2]);
  EXPECT_NE(second[3], first[3]);
}

TEST(BlockManagerTest, FindsTheFullBlocksOfAKnownPrefix) {
  BlockManager blocks(8, 4);
  const std::vector<int32_t> ids = Fill(blocks, Tokens(12));
  std::vector<int32_t> other = Tokens(12);
  other[9] = 77;

  const PrefixMatch match = blocks.MatchPrefix(other, 11);

  EXPECT_EQ(match.blocks, std::vector<int32_t>(ids.begin(), ids.begin() + 2));
  EXPECT_EQ(blocks.num_free(), 6);
}

TEST(BlockManagerTest, NeverMatchesMoreThanItIsAskedFor) {
  BlockManager blocks(8, 4);
  Fill(blocks, Tokens(8));
  EXPECT_EQ(blocks.MatchPrefix(Tokens(8), 7).blocks.size(), 1u);
}

TEST(BlockManagerTest, ABlockIsKnownByAllTokensBeforeIt) {
  BlockManager blocks(8, 4);
  Fill(blocks, Tokens(8));
  EXPECT_TRUE(blocks.MatchPrefix(Tokens(4, 4), 4).blocks.empty());
}

TEST(BlockManagerTest, AnotherVersionFindsNothing) {
  BlockManager blocks(8, 4);
  blocks.SetRoot(RootHash("m", 1, ""));
  Fill(blocks, Tokens(8));
  for (const BlockHash& root :
       {RootHash("m", 2, ""), RootHash("n", 1, ""), RootHash("m", 1, "salt")}) {
    blocks.SetRoot(root);
    EXPECT_TRUE(blocks.MatchPrefix(Tokens(8), 8).blocks.empty());
  }
  blocks.SetRoot(RootHash("m", 1, ""));
  EXPECT_EQ(blocks.MatchPrefix(Tokens(8), 8).blocks.size(), 2u);
}

TEST(BlockManagerTest, TheLeastRecentlyUsedContentsGoFirst) {
  BlockManager blocks(4, 4);
  Fill(blocks, Tokens(8, 0));
  Fill(blocks, Tokens(8, 100));
  // Used again: now the other prompt is the older one.
  for (const int32_t block : blocks.MatchPrefix(Tokens(8, 0), 8).blocks) blocks.Release(block);

  const int32_t first = *blocks.Allocate();
  const int32_t second = *blocks.Allocate();

  EXPECT_TRUE(blocks.MatchPrefix(Tokens(8, 100), 8).blocks.empty());
  EXPECT_EQ(blocks.MatchPrefix(Tokens(8, 0), 8).blocks.size(), 2u);
  blocks.Release(first);
  blocks.Release(second);
}

TEST(BlockManagerTest, ATailIsTakenOnceByTokensThatContinueIt) {
  BlockManager blocks(4, 4);
  const BlockHash parent = ChainHash(blocks.root(), Tokens(4));
  const int32_t block = *blocks.Allocate();
  blocks.KeepTail({block}, parent, Tokens(3, 4));
  blocks.Release(block);
  EXPECT_EQ(blocks.num_free(), 4);
  EXPECT_TRUE(blocks.TakeTail(parent, Tokens(2, 4)).blocks.empty());
  EXPECT_TRUE(blocks.TakeTail(parent, Tokens(5, 5)).blocks.empty());
  EXPECT_TRUE(blocks.TakeTail(blocks.root(), Tokens(5, 4)).blocks.empty());

  const Tail tail = blocks.TakeTail(parent, Tokens(5, 4));

  EXPECT_EQ(tail.blocks, std::vector<int32_t>{block});
  EXPECT_EQ(tail.num_tokens, 3);
  EXPECT_EQ(blocks.num_free(), 3);
  EXPECT_FALSE(blocks.IsShared(block));
  EXPECT_TRUE(blocks.TakeTail(parent, Tokens(5, 4)).blocks.empty());
}

// Keeps the tail of a sequence that ended, whose tokens begin with `first`; returns its block.
int32_t KeepTail(BlockManager& blocks, int32_t first) {
  const int32_t block = *blocks.Allocate();
  blocks.KeepTail({block}, blocks.root(), Tokens(3, first));
  blocks.Release(block);
  return block;
}

TEST(BlockManagerTest, TailsOfOneParentAreKeptUntilTheirBlocksAreNeeded) {
  BlockManager blocks(3, 4);
  KeepTail(blocks, 0);
  KeepTail(blocks, 10);
  KeepTail(blocks, 10);  // equal tails are kept once
  EXPECT_EQ(blocks.num_free(), 3);
  const int32_t free = *blocks.Allocate();
  const Tail tail = blocks.TakeTail(blocks.root(), Tokens(4, 10));
  ASSERT_EQ(tail.blocks.size(), 1u);
  const int32_t needed = *blocks.Allocate();
  EXPECT_NE(free, needed);
  EXPECT_NE(tail.blocks[0], needed);
  EXPECT_TRUE(blocks.TakeTail(blocks.root(), Tokens(4, 0)).blocks.empty());
  EXPECT_EQ(blocks.num_free(), 0);
}

TEST(BlockManagerTest, TailsAndFullBlocksAreEvictedLeastRecentlyUsedFirst) {
  BlockManager blocks(3, 4);
  const int32_t oldest = KeepTail(blocks, 10);
  const auto full = Fill(blocks, Tokens(4));
  const int32_t newest = KeepTail(blocks, 20);
  EXPECT_EQ(*blocks.Allocate(), oldest);
  EXPECT_EQ(*blocks.Allocate(), full[0]);
  EXPECT_TRUE(blocks.TakeTail(blocks.root(), Tokens(4, 10)).blocks.empty());
  EXPECT_EQ(blocks.TakeTail(blocks.root(), Tokens(4, 20)).blocks, std::vector<int32_t>{newest});
}

TEST(BlockManagerTest, ATailNeedsTheBlocksOfAllGroups) {
  BlockManager blocks(2, 4, {0, 6});
  const int32_t a = *blocks.Allocate();
  const int32_t b = *blocks.Allocate();
  blocks.KeepTail({a, b}, blocks.root(), Tokens(2));
  blocks.Release(b);
  blocks.Release(a);
  EXPECT_EQ(*blocks.Allocate(), b);  // the one that was released first
  EXPECT_TRUE(blocks.TakeTail(blocks.root(), Tokens(3)).blocks.empty());
  blocks.Release(b);
  const int32_t again = *blocks.Allocate();
  const int32_t other = *blocks.Allocate();
  blocks.KeepTail({again, other}, blocks.root(), Tokens(2));
  blocks.Release(again);
  blocks.Release(other);
  EXPECT_EQ(blocks.TakeTail(blocks.root(), Tokens(3)).blocks.size(), 2u);
}

TEST(BlockManagerTest, EqualContentsAreKnownOnce) {
  BlockManager blocks(4, 4);
  Fill(blocks, Tokens(4));
  const std::vector<int32_t> again = Fill(blocks, Tokens(4));
  const PrefixMatch match = blocks.MatchPrefix(Tokens(4), 4);
  ASSERT_EQ(match.blocks.size(), 1u);
  EXPECT_NE(match.blocks[0], again[0]);
  EXPECT_EQ(blocks.num_free(), 3);
}

// Publishes blocks of one group for a prompt's block positions from `first` to `end`.
void FillGroup(BlockManager& blocks, const std::vector<int32_t>& tokens, int64_t group,
               int64_t first, int64_t end) {
  BlockHash hash = blocks.root();
  const int64_t size = blocks.block_size();
  for (int64_t i = 0; i < end; ++i) {
    hash = ChainHash(hash, absl::MakeConstSpan(tokens).subspan(i * size, size));
    if (i < first) continue;
    const int32_t block = *blocks.Allocate();
    blocks.Publish(block, hash, group);
    blocks.Release(block);
  }
}

TEST(BlockManagerTest, AHitNeedsOnlyTheBlocksThatTheWindowShows) {
  BlockManager blocks(32, 4, {0, 6});
  FillGroup(blocks, Tokens(16), 0, 0, 4);
  // Token 16 sees tokens 11 to 16.
  FillGroup(blocks, Tokens(16), 1, 2, 4);

  const PrefixMatch match = blocks.MatchPrefix(Tokens(20), 19);

  EXPECT_EQ(match.num_tokens, 16);
  ASSERT_EQ(match.blocks.size(), 8u);
  for (const size_t gone : {1, 3}) EXPECT_EQ(match.blocks[gone], model::kNoBlock);
  for (const size_t held : {0, 2, 4, 5, 6, 7}) EXPECT_GE(match.blocks[held], 0);
  EXPECT_EQ(blocks.num_free(), 32 - 6);
}

TEST(BlockManagerTest, AHitEndsWhereEveryGroupHasWhatItNeeds) {
  BlockManager blocks(32, 4, {0, 6});
  FillGroup(blocks, Tokens(16), 0, 0, 4);
  FillGroup(blocks, Tokens(16), 1, 0, 2);
  FillGroup(blocks, Tokens(16), 1, 3, 4);
  // Without its third block the window is whole only after the second one.
  EXPECT_EQ(blocks.MatchPrefix(Tokens(16), 16).num_tokens, 8);

  BlockManager other(32, 4, {0, 6});
  FillGroup(other, Tokens(16), 0, 0, 3);
  FillGroup(other, Tokens(16), 1, 0, 4);
  EXPECT_EQ(other.MatchPrefix(Tokens(16), 16).num_tokens, 12);
}

TEST(BlockManagerTest, WithoutAFullGroupTheBeginningNeedNotBeCached) {
  BlockManager blocks(32, 4, {6});
  FillGroup(blocks, Tokens(16), 0, 2, 4);
  const PrefixMatch match = blocks.MatchPrefix(Tokens(17), 16);
  EXPECT_EQ(match.num_tokens, 16);
  EXPECT_EQ(match.blocks[0], model::kNoBlock);
  EXPECT_EQ(match.blocks[1], model::kNoBlock);
  EXPECT_EQ(blocks.num_free(), 30);
}

TEST(BlockManagerTest, ABlockServesOnlyItsGroup) {
  BlockManager blocks(32, 4, {0, 6});
  FillGroup(blocks, Tokens(8), 0, 0, 2);
  EXPECT_TRUE(blocks.MatchPrefix(Tokens(8), 8).blocks.empty());
  EXPECT_EQ(blocks.num_free(), 32);
}

}  // namespace
}  // namespace tandem::rollout
