// Random loads: every request ends, and holds nothing afterwards.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "tests/services/rollout/scheduler/scheduler_fixture.h"

namespace tandem::rollout {
namespace {

using model::Window;

TEST_F(SchedulerTest, EpisodesReturnUnderAnyLoad) {
  int64_t num_cached = 0;
  const std::vector<Window> kWindows[] = {
      {0}, {6}, {0, 6}, {0, 1, 9}, {Window(6, true)}, {0, {4, true}, {10, true}}};
  for (uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    sequences_.clear();
    const SchedulerOptions options{.max_num_seqs = 1 + seed % 7,
                                   .max_num_batched_tokens = 1 + seed % 13};
    const std::vector<Window>& windows = kWindows[seed % std::size(kWindows)];
    const int64_t num_blocks =
        1 + seed % 20 +
        model::MaxBlocksAtOnce(windows, 26, options.max_num_batched_tokens, kBlockSize);
    Start(num_blocks, options, windows);
    std::map<Sequence*, int> turns_left;
    for (int i = 0; i < 8; ++i) {
      Sequence* s = Make(1 + random() % 6, /*first_token=*/random() % 2 == 0 ? 5 : -1);
      scheduler_->Add(s);
      turns_left[s] = 3;
    }
    int steps = 0;
    while (!turns_left.empty()) {
      ASSERT_LT(++steps, 5000) << "seed " << seed;
      ASSERT_FALSE(Step().empty()) << "seed " << seed;
      for (const auto& [s, left] : std::map<Sequence*, int>(turns_left)) {
        if (s->num_sampled() < 3) continue;
        scheduler_->Remove(s);
        turns_left.erase(s);
        if (left == 0) continue;
        Sequence* next = Continue(*s, 1 + random() % 2);
        scheduler_->Add(next);
        turns_left[next] = left - 1;
      }
    }
    EXPECT_EQ(blocks_->num_free(), num_blocks);
    num_cached += scheduler_->stats().num_cached_tokens;
  }
  EXPECT_GT(num_cached, 0);
}

TEST_F(SchedulerTest, EveryRequestEndsUnderAnyLoad) {
  const std::vector<Window> kWindows[] = {
      {0}, {6}, {0, 6}, {0, 1, 9}, {Window(6, true)}, {0, {4, true}, {10, true}}};
  for (uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    sequences_.clear();
    const SchedulerOptions options{.max_num_seqs = 1 + seed % 7,
                                   .max_num_batched_tokens = 1 + seed % 13,
                                   .num_states = seed % 2 == 0 ? 0 : 1 + seed % 7};
    const std::vector<Window>& windows = kWindows[seed % std::size(kWindows)];
    // A block more than the longest, of 28 tokens, needs alone.
    const int64_t num_blocks =
        1 + model::MaxBlocksAtOnce(windows, 28, options.max_num_batched_tokens, kBlockSize);
    Start(num_blocks, options, windows);
    std::vector<Sequence*> open;
    for (int i = 0; i < 12; ++i) {
      // Some share prompts.
      Sequence* s = Make(1 + random() % 20, /*first_token=*/random() % 2 == 0 ? 5 : -1);
      s->priority = seed % 3 == 0 ? static_cast<int32_t>(random() % 3) : 0;
      s->client = seed % 2 == 0 ? random() % 3 : 0;
      scheduler_->Add(s);
      open.push_back(s);
    }
    int steps = 0;
    while (!open.empty()) {
      ASSERT_LT(++steps, 5000) << "seed " << seed;
      ASSERT_FALSE(Step().empty()) << "seed " << seed;
      if (options.num_states > 0) CheckStates(options.num_states);
      std::erase_if(open, [&](Sequence* s) {
        if (s->num_sampled() < 8) return false;
        scheduler_->Remove(s);
        return true;
      });
    }
    EXPECT_EQ(blocks_->num_free(), num_blocks);
  }
}

}  // namespace
}  // namespace tandem::rollout
