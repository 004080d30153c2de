#include "services/rollout/ranks/step_order.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

constexpr int64_t kOneGroup[] = {0};
constexpr CacheLayout kCache{.num_blocks = 10, .block_size = 16, .windows = kOneGroup};
constexpr std::pair<int32_t, int32_t> kBlockCopies[] = {{7, 8}};
constexpr std::pair<int32_t, int32_t> kStateCopies[] = {{2, 0}};

Sequence MakeSequence(int64_t num_tokens, int64_t num_computed, std::vector<int32_t> blocks) {
  Sequence sequence;
  for (int64_t i = 0; i < num_tokens; ++i) sequence.tokens.push_back(static_cast<int32_t>(100 + i));
  sequence.num_computed = num_computed;
  sequence.blocks = std::move(blocks);
  return sequence;
}

TEST(StepOrderTest, TheMirrorHasWhatTheStepReads) {
  const Sequence decodes = MakeSequence(20, 19, {3, 1, 9});
  const Sequence scored = MakeSequence(12, 4, {5});
  const std::vector<RunItem> items = {
      {.sequence = &decodes, .num_tokens = 1, .samples = true},
      {.sequence = &scored, .num_tokens = 6, .scores = true, .score_temperature = 0.5}};
  v1::StepOrder order;
  WriteStep(items, {.blocks = kBlockCopies}, kCache, order);

  StepMirror mirror;
  ASSERT_OK(mirror.Read(order, kCache));

  ASSERT_EQ(mirror.items().size(), 2u);
  for (size_t i = 0; i < items.size(); ++i) {
    const RunItem& found = mirror.items()[i];
    EXPECT_EQ(found.num_tokens, items[i].num_tokens);
    EXPECT_EQ(found.samples, items[i].samples);
    EXPECT_EQ(found.scores, items[i].scores);
    EXPECT_EQ(found.score_temperature, items[i].score_temperature);
    EXPECT_EQ(found.sequence->num_computed, items[i].sequence->num_computed);
    const int64_t end = found.sequence->num_computed + found.num_tokens + (found.scores ? 1 : 0);
    ASSERT_EQ(found.sequence->num_tokens(), end);
    for (int64_t t = found.sequence->num_computed; t < end; ++t) {
      EXPECT_EQ(found.sequence->tokens[t], items[i].sequence->tokens[t]);
    }
  }
  // Not the block that the step does not reach.
  EXPECT_EQ(mirror.items()[0].sequence->blocks, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(mirror.copies().blocks[0], std::pair(7, 8));
  EXPECT_TRUE(mirror.copies().states.empty());
}

TEST(StepOrderTest, TheMirrorHasTheStatesOfAModelThatHasThem) {
  CacheLayout cache = kCache;
  cache.num_states = 3;
  Sequence sequence = MakeSequence(20, 19, {3, 1});
  sequence.state = 2;
  v1::StepOrder order;
  WriteStep({{{.sequence = &sequence, .num_tokens = 1}}}, {.states = kStateCopies}, cache, order);
  StepMirror mirror;
  ASSERT_OK(mirror.Read(order, cache));
  EXPECT_EQ(mirror.items()[0].sequence->state, 2);
  ASSERT_EQ(mirror.copies().states.size(), 1u);
  EXPECT_EQ(mirror.copies().states[0], std::pair(2, 0));

  v1::StepOrder without = order;
  without.mutable_sequences(0)->set_state(3);
  EXPECT_EQ(mirror.Read(without, cache).code(), absl::StatusCode::kInternal);
  order.set_state_copies(0, -1);
  EXPECT_EQ(mirror.Read(order, cache).code(), absl::StatusCode::kInternal);
}

TEST(StepOrderTest, RefusesWhatDoesNotHoldTogether) {
  const std::function<void(v1::StepOrder&)> spoils[] = {
      [](auto& order) { order.mutable_sequences(0)->set_num_tokens(3); },
      [](auto& order) { order.mutable_sequences(0)->set_num_tokens(0); },
      [](auto& order) { order.mutable_sequences(0)->set_num_computed(-1); },
      [](auto& order) { order.mutable_sequences(0)->set_num_computed(40); },
      [](auto& order) { order.mutable_sequences(0)->set_blocks(0, 10); },
      [](auto& order) { order.mutable_sequences(0)->set_blocks(0, -1); },
      [](auto& order) { order.set_block_copies(1, 10); },
  };
  const Sequence sequence = MakeSequence(20, 19, {3, 1});
  for (size_t i = 0; i < std::size(spoils); ++i) {
    v1::StepOrder order;
    WriteStep({{{.sequence = &sequence, .num_tokens = 1}}}, {.blocks = kBlockCopies}, kCache,
              order);
    StepMirror mirror;
    ASSERT_OK(mirror.Read(order, kCache));
    spoils[i](order);
    EXPECT_EQ(mirror.Read(order, kCache).code(), absl::StatusCode::kInternal) << i;
  }
}

TEST(StepOrderTest, OnlyBlocksThatHaveLeftTheirWindowMayBeMissing) {
  const int64_t windows[] = {0, 20};
  const CacheLayout cache{.num_blocks = 10, .block_size = 16, .windows = windows};
  // At 36 tokens the window begins with token 17, in the second block.
  const Sequence sequence = MakeSequence(37, 36, {3, -1, 1, 2, 4, 5});
  v1::StepOrder order;
  WriteStep({{{.sequence = &sequence, .num_tokens = 1}}}, {}, cache, order);
  StepMirror mirror;
  ASSERT_OK(mirror.Read(order, cache));
  EXPECT_EQ(mirror.items()[0].sequence->blocks, sequence.blocks);

  for (const int entry : {0, 2, 3, 4, 5}) {
    v1::StepOrder missing = order;
    missing.mutable_sequences(0)->set_blocks(entry, -1);
    EXPECT_EQ(mirror.Read(missing, cache).code(), absl::StatusCode::kInternal) << entry;
  }
  order.mutable_sequences(0)->mutable_blocks()->RemoveLast();
  EXPECT_EQ(mirror.Read(order, cache).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tandem::rollout
