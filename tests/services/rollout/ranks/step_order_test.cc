#include "services/rollout/ranks/step_order.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

constexpr model::Window kOneGroup[] = {0};
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
  const std::vector<RunItem> items = {{.sequence = &decodes, .num_tokens = 1, .samples = true},
                                      {.sequence = &scored,
                                       .num_tokens = 6,
                                       .scores = true,
                                       .score_temperature = 0.5,
                                       .first_scored = 7}};
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
    EXPECT_EQ(found.first_scored, items[i].first_scored);
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

TEST(StepOrderTest, TheMirrorHasTheRowsOfImages) {
  model::ImagePlaces places;
  places.tokens = {3, 4, 5, 6};
  for (int64_t axis = 0; axis < 3; ++axis) {
    for (int64_t token = 0; token < 9; ++token) {
      places.positions[axis].push_back(100 * axis + token);
    }
  }
  places.next_position = 7;
  Sequence cut = MakeSequence(12, 5, {3});
  cut.places = &places;
  RunItem item{.sequence = &cut, .num_tokens = 6};
  item.image_rows = at::arange(6, at::kFloat).view({2, 3});
  v1::StepOrder order;
  WriteStep({{item}}, {}, kCache, order);

  StepMirror mirror;
  ASSERT_OK(mirror.Read(order, kCache, {.width = 3}));

  const RunItem& found = mirror.items()[0];
  EXPECT_TRUE(at::equal(found.image_rows, item.image_rows));
  ASSERT_NE(found.sequence->places, nullptr);
  EXPECT_EQ(found.sequence->places->tokens, (std::vector<int64_t>{5, 6}));
  for (size_t axis = 0; axis < 3; ++axis) {
    for (int64_t token = 5; token < 11; ++token) {
      EXPECT_EQ(found.sequence->PositionOf(token, axis), cut.PositionOf(token, axis));
    }
  }
  EXPECT_EQ(cut.PositionOf(10, 2), 8);  // behind the prompt

  const std::function<void(v1::SequenceStep&)> spoils[] = {
      [](auto& step) { step.add_positions(1); },
      [](auto& step) { step.mutable_image_rows()->pop_back(); },
      [](auto& step) { step.set_image_tokens(1, 6); },
      [](auto& step) { step.set_image_tokens(0, -1); },
      [](auto& step) { step.set_image_tokens(1, 0); },
  };
  for (size_t i = 0; i < std::size(spoils); ++i) {
    v1::StepOrder spoiled = order;
    spoils[i](*spoiled.mutable_sequences(0));
    EXPECT_EQ(mirror.Read(spoiled, kCache, {.width = 3}).code(), absl::StatusCode::kInternal) << i;
  }
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
  const model::Window windows[] = {0, 20};
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
