#include "services/rollout/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace tandem::rollout {
namespace {

using model::Window;
using ::testing::ElementsAre;

class SchedulerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBlockSize = 4;

  void Start(int64_t num_blocks, const SchedulerOptions& options,
             const std::vector<Window>& windows = {0}) {
    windows_ = windows;
    contents_.clear();
    blocks_ = std::make_unique<BlockManager>(num_blocks, kBlockSize, windows);
    scheduler_ = std::make_unique<Scheduler>(options, *blocks_);
  }

  Sequence* Make(int64_t num_prompt_tokens, int32_t first_token = -1) {
    Sequence& s = sequences_.emplace_back();
    s.arrival = static_cast<int64_t>(sequences_.size());
    if (first_token < 0) first_token = static_cast<int32_t>(1000 * s.arrival);
    for (int64_t i = 0; i < num_prompt_tokens; ++i) {
      s.tokens.push_back(first_token + static_cast<int32_t>(i));
    }
    s.num_prompt_tokens = num_prompt_tokens;
    return &s;
  }
  // The next turn of an episode: all its tokens, and `count` new ones.
  Sequence* Continue(const Sequence& turn, int64_t count) {
    Sequence* s = Make(0);
    s->tokens = turn.tokens;
    for (int64_t i = 0; i < count; ++i) s->tokens.push_back(50 + static_cast<int32_t>(i));
    s->num_prompt_tokens = s->num_tokens();
    return s;
  }
  Sequence* Add(int64_t num_prompt_tokens, int32_t first_token = -1) {
    Sequence* s = Make(num_prompt_tokens, first_token);
    scheduler_->Add(s);
    return s;
  }

  // Plans a step, completes it, and samples a token for each sequence that reaches its end. Answers
  // the tokens that each planned sequence computed.
  std::vector<std::pair<Sequence*, int64_t>> Step() {
    const StepPlan plan = scheduler_->Plan();
    for (const PlannedSequence& p : plan.sequences) CheckBlocks(p);
    Run(plan);
    std::vector<std::pair<Sequence*, int64_t>> out;
    std::vector<Sequence*> sampled;
    int64_t total = 0;
    for (const PlannedSequence& p : plan.sequences) {
      out.emplace_back(p.sequence, p.num_tokens);
      total += p.num_tokens;
      if (p.reaches_end()) sampled.push_back(p.sequence);
    }
    EXPECT_EQ(total, plan.num_tokens);
    scheduler_->Complete(plan);
    for (Sequence* s : sampled) s->tokens.push_back(7);
    return out;
  }

  // Every token has its block, and what is written belongs to the sequence alone.
  void CheckBlocks(const PlannedSequence& p) {
    const Sequence& s = *p.sequence;
    const auto groups = static_cast<int64_t>(windows_.size());
    ASSERT_GE(static_cast<int64_t>(s.blocks.size()) * kBlockSize,
              (s.num_computed + p.num_tokens) * groups);
    for (int64_t i = s.num_computed; i < s.num_computed + p.num_tokens; ++i) {
      for (int64_t group = 0; group < groups; ++group) {
        const int32_t block = s.blocks[i / kBlockSize * groups + group];
        ASSERT_NE(block, model::kNoBlock);
        EXPECT_FALSE(blocks_->IsShared(block));
      }
    }
  }

  // Every running sequence has a state of its own, and no other one has any.
  void CheckStates(int64_t num_states) {
    std::vector<int> times_taken(num_states);
    for (const Sequence* s : scheduler_->running()) {
      ASSERT_GE(s->state, 0);
      ASSERT_LT(s->state, num_states);
      EXPECT_EQ(++times_taken[s->state], 1) << "state " << s->state;
    }
    for (const Sequence* s : scheduler_->waiting()) EXPECT_EQ(s->state, -1);
  }

  // What the cache holds of a token: it depends on the group and on all tokens so far.
  static BlockHash ContentOf(const Sequence& s, int64_t position, int64_t group) {
    return ChainHash({static_cast<uint64_t>(group), 0},
                     absl::MakeConstSpan(s.tokens).subspan(0, position + 1));
  }
  // What is at the place of a token.
  BlockHash& ContentAt(const Sequence& s, int64_t position, int64_t group) {
    const auto groups = static_cast<int64_t>(windows_.size());
    return contents_[{s.blocks[position / kBlockSize * groups + group], position % kBlockSize}];
  }

  // Writes what the model would, and checks that every token that a window shows is found.
  void Run(const StepPlan& plan) {
    for (const auto& [from, to] : plan.block_copies) {
      for (int64_t i = 0; i < kBlockSize; ++i) contents_[{to, i}] = contents_[{from, i}];
    }
    const auto groups = static_cast<int64_t>(windows_.size());
    for (const PlannedSequence& p : plan.sequences) {
      const Sequence& s = *p.sequence;
      for (int64_t i = s.num_computed; i < s.num_computed + p.num_tokens; ++i) {
        for (int64_t g = 0; g < groups; ++g) ContentAt(s, i, g) = ContentOf(s, i, g);
      }
    }
    for (const PlannedSequence& p : plan.sequences) {
      const Sequence& s = *p.sequence;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t size = windows_[g].size;
        const int64_t oldest = size == 0 ? 0
                               : windows_[g].chunked
                                   ? s.num_computed - s.num_computed % size
                                   : std::max<int64_t>(0, s.num_computed + 1 - size);
        for (int64_t i = oldest; i < s.num_computed + p.num_tokens; ++i) {
          ASSERT_EQ(ContentAt(s, i, g), ContentOf(s, i, g)) << "token " << i << ", group " << g;
        }
      }
    }
  }

  int64_t NumHeld() const { return blocks_->num_blocks() - blocks_->num_free(); }

  std::vector<Window> windows_;
  std::map<std::pair<int32_t, int64_t>, BlockHash> contents_;  // by block and offset
  std::deque<Sequence> sequences_;
  std::unique_ptr<BlockManager> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, APromptWaitsForItsImagesAndNobodyElseDoes) {
  Start(20, {.max_num_seqs = 4, .max_num_batched_tokens = 16});
  const model::ImagePlaces places;
  int64_t num_ready = 0;
  std::vector<const Sequence*> asked;
  scheduler_->SetNumReady([&](const Sequence& sequence) {
    asked.push_back(&sequence);
    return num_ready;
  });
  Sequence* const with_images = Make(10);
  with_images->places = &places;
  scheduler_->Add(with_images);
  Sequence* const text = Add(3);

  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 3)));
  EXPECT_TRUE(with_images->blocks.empty());
  EXPECT_TRUE(scheduler_->waiting().contains(with_images));
  num_ready = 6;
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_images, 6)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1)));  // its next image is not there
  num_ready = 10;
  EXPECT_THAT(Step(), ElementsAre(std::pair(text, 1), std::pair(with_images, 4)));
  for (const Sequence* sequence : asked) EXPECT_EQ(sequence, with_images);
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0);
}

TEST_F(SchedulerTest, DecodesFirstThenAdmitsInOrderOfArrival) {
  Start(100, {.max_num_seqs = 8, .max_num_batched_tokens = 10});
  Sequence* a = Add(6);
  Step();
  Sequence* b = Add(6);
  Sequence* c = Add(6);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 6), std::pair(c, 3)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 1), std::pair(c, 3)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 1), std::pair(c, 1)));
}

TEST_F(SchedulerTest, ALongPromptIsComputedInChunks) {
  Start(100, {.max_num_batched_tokens = 8});
  Sequence* a = Add(20);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 8)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 8)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 4)));
  EXPECT_EQ(a->num_sampled(), 1);
}

TEST_F(SchedulerTest, AGroupIsAdmittedWhenAllItsSamplesHaveRoom) {
  Start(100, {.max_num_seqs = 4});
  Sequence* a = Add(3);
  Step();
  Sequence* group = Make(3);
  group->num_samples = 4;
  scheduler_->Add(group);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1)));
  scheduler_->Remove(a);
  EXPECT_THAT(Step(), ElementsAre(std::pair(group, 3)));
}

TEST_F(SchedulerTest, AForkSharesBlocksAndTheFirstWriterCopiesTheLastOne) {
  Start(100, {});
  Sequence* a = Add(6);
  Step();
  Sequence* b = Make(6);
  b->arrival = a->arrival;
  b->index = 1;
  b->tokens.back() = a->tokens[5];
  b->tokens = a->tokens;
  scheduler_->Fork(*a, b);
  EXPECT_EQ(b->blocks, a->blocks);

  const std::vector<int32_t> before = a->blocks;
  const StepPlan plan = scheduler_->Plan();

  // One copy for two holders: the other goes on writing in place.
  EXPECT_THAT(plan.block_copies, ElementsAre(std::pair(before[1], a->blocks[1])));
  EXPECT_EQ(b->blocks, before);
  EXPECT_EQ(a->blocks[0], b->blocks[0]);
  EXPECT_NE(a->blocks[1], b->blocks[1]);
}

TEST_F(SchedulerTest, RunningSequencesHaveAStateEachAndPromptsAreNotShared) {
  Start(100, {.max_num_seqs = 4, .num_states = 4});
  Sequence* a = Add(10, /*first_token=*/5);
  Sequence* b = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 10), std::pair(b, 10)));
  CheckStates(4);
  const int32_t state = a->state;
  scheduler_->Remove(a);
  Sequence* c = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(b, 1), std::pair(c, 10)));
  EXPECT_EQ(c->state, state);
  EXPECT_EQ(c->num_cached, 0);
  EXPECT_EQ(scheduler_->RecomputeAll(), 2);
  CheckStates(4);
  Step();
  CheckStates(4);
}

TEST_F(SchedulerTest, AForkHasAStateOfItsOwnOrWaits) {
  Start(100, {.max_num_seqs = 4, .num_states = 2});
  Sequence* a = Add(6);
  Step();
  std::vector<Sequence*> copies;
  for (int32_t i = 1; i < 3; ++i) {
    Sequence* copy = copies.emplace_back(Make(6));
    copy->arrival = a->arrival;
    copy->index = i;
    copy->tokens = a->tokens;
    scheduler_->Fork(*a, copy);
  }
  CheckStates(2);
  EXPECT_EQ(copies[0]->blocks, a->blocks);
  EXPECT_TRUE(scheduler_->waiting().contains(copies[1]));
  EXPECT_TRUE(copies[1]->blocks.empty());
  scheduler_->Remove(a);
  EXPECT_THAT(Step(), ElementsAre(std::pair(copies[0], 1), std::pair(copies[1], 7)));
  CheckStates(2);
}

TEST_F(SchedulerTest, APromptThatIsKnownIsNotComputedAgain) {
  Start(100, {});
  Sequence* a = Add(10, /*first_token=*/5);
  Step();
  scheduler_->Remove(a);
  Sequence* b = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(b, 2)));
  EXPECT_EQ(b->num_cached, 8);
}

TEST_F(SchedulerTest, EqualPromptsThatArriveTogetherAreComputedOnce) {
  Start(100, {});
  Sequence* a = Add(10, /*first_token=*/5);
  Sequence* b = Add(10, /*first_token=*/5);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 10)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 2)));
}

TEST_F(SchedulerTest, TheLatestArrivalGivesWayWhenBlocksRunOut) {
  Start(4, {});
  Sequence* a = Add(8);
  Sequence* b = Add(8);
  Step();
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1)));
  EXPECT_TRUE(b->blocks.empty());
  EXPECT_TRUE(scheduler_->waiting().contains(b));
  EXPECT_EQ(scheduler_->stats().num_preemptions, 1);
  scheduler_->Remove(a);
  // Its prompt is still in the cache, but for the token that was sampled.
  const auto step = Step();
  ASSERT_EQ(step.size(), 1u);
  EXPECT_EQ(step[0].first, b);
}

TEST_F(SchedulerTest, RemovedSequencesHoldNothing) {
  Start(10, {});
  Sequence* a = Add(9);
  Sequence* b = Add(9);
  Step();
  scheduler_->Remove(a);
  scheduler_->Remove(b);
  scheduler_->Remove(b);
  EXPECT_EQ(blocks_->num_free(), 10);
  EXPECT_TRUE(Step().empty());
}

TEST_F(SchedulerTest, RecomputingKeepsTokensAndOrder) {
  Start(100, {});
  Sequence* a = Add(9);
  Sequence* b = Add(5);
  Step();
  EXPECT_EQ(scheduler_->RecomputeAll(), 2);
  EXPECT_EQ(blocks_->num_free(), 100);
  blocks_->SetRoot(RootHash("m", 2, ""));
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 10), std::pair(b, 6)));
}

TEST_F(SchedulerTest, HigherPrioritiesAreAdmittedFirstAndGiveWayLast) {
  Start(4, {});
  Sequence* low = Add(8);
  Sequence* high = Make(8);
  high->priority = 1;
  scheduler_->Add(high);
  EXPECT_THAT(Step(), ElementsAre(std::pair(high, 8), std::pair(low, 8)));
  // A block for each next token is one too many.
  EXPECT_THAT(Step(), ElementsAre(std::pair(high, 1)));
  EXPECT_TRUE(scheduler_->waiting().contains(low));
}

TEST_F(SchedulerTest, ClientsTakeTurnsHoweverManyRequestsEachHas) {
  Start(1000, {.max_num_seqs = 1});
  std::vector<Sequence*> many;
  for (int i = 0; i < 6; ++i) {
    many.push_back(Make(10));
    many.back()->client = 1;
    scheduler_->Add(many.back());
  }
  Step();
  scheduler_->Remove(many[0]);
  Sequence* few = Make(10);
  few->client = 2;
  scheduler_->Add(few);
  // Both clients begin equal; the first has the earlier request.
  EXPECT_THAT(Step(), ElementsAre(std::pair(many[1], 10)));
  scheduler_->Remove(many[1]);
  EXPECT_THAT(Step(), ElementsAre(std::pair(few, 10)));
  scheduler_->Remove(few);
  EXPECT_THAT(Step(), ElementsAre(std::pair(many[2], 10)));
}

TEST_F(SchedulerTest, AGroupThatHasEverythingGivesWayToOthers) {
  Start(1000, {.max_num_seqs = 16});
  Sequence* group = Make(6);
  group->num_samples = 40;
  scheduler_->Add(group);
  Step();
  group->num_samples = 1;
  for (int32_t i = 1; i < 40; ++i) {
    Sequence* copy = Make(6);
    copy->arrival = group->arrival;
    copy->index = i;
    copy->tokens = group->tokens;
    scheduler_->Fork(*group, copy);
  }
  // Alone it has all places.
  EXPECT_EQ(Step().size(), 16u);
  EXPECT_EQ(scheduler_->waiting().size(), 24u);
  Sequence* small = Add(5);
  const auto step = Step();
  EXPECT_TRUE(scheduler_->running().contains(small));
  EXPECT_EQ(scheduler_->running().size(), 16u);
  EXPECT_TRUE(scheduler_->running().contains(group));
  scheduler_->Remove(small);
  // What gave way comes back.
  EXPECT_EQ(Step().size(), 16u);
}

TEST_F(SchedulerTest, ALongPromptLeavesTokensToOthers) {
  Start(1000, {.max_num_batched_tokens = 16});
  Sequence* huge = Add(400);
  EXPECT_THAT(Step(), ElementsAre(std::pair(huge, 16)));
  Sequence* small = Add(4);
  EXPECT_THAT(Step(), ElementsAre(std::pair(huge, 12), std::pair(small, 4)));
  EXPECT_THAT(Step(), ElementsAre(std::pair(small, 1), std::pair(huge, 15)));
}

TEST_F(SchedulerTest, TheRequestWithMostGivesWayWhenBlocksRunOut) {
  Start(12, {});
  Sequence* group = Make(4);
  scheduler_->Add(group);
  Step();
  for (int32_t i = 1; i < 8; ++i) {
    Sequence* copy = Make(4);
    copy->arrival = group->arrival;
    copy->index = i;
    copy->tokens = group->tokens;
    scheduler_->Fork(*group, copy);
  }
  Sequence* small = Add(4);
  int steps = 0;
  while (small->num_sampled() < 6 && ++steps < 40) Step();
  EXPECT_EQ(small->num_sampled(), 6);
  EXPECT_TRUE(scheduler_->running().contains(group));
  EXPECT_GT(scheduler_->stats().num_preemptions, 0);
}

TEST_F(SchedulerTest, BlocksThatLeaveTheWindowAreFreed) {
  Start(/*num_blocks=*/5, {.max_num_batched_tokens = 4}, {6});
  Sequence* a = Add(10);
  for (int i = 0; i < 400; ++i) {
    ASSERT_FALSE(Step().empty());
    ASSERT_LE(NumHeld(), 3) << "tokens " << a->num_computed;
  }
  EXPECT_GT(a->num_sampled(), 390);
  EXPECT_EQ(a->blocks.front(), model::kNoBlock);
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0);
  scheduler_->Remove(a);
  EXPECT_EQ(NumHeld(), 0);
}

TEST_F(SchedulerTest, AGroupWithoutAWindowKeepsItsBlocks) {
  Start(/*num_blocks=*/100, {}, {0, 6});
  Sequence* a = Add(10);
  for (int i = 0; i < 200; ++i) Step();
  EXPECT_EQ(a->num_computed, 209);
  EXPECT_GE(NumHeld(), 53 + 2);
  EXPECT_LE(NumHeld(), 53 + 3);
}

TEST_F(SchedulerTest, AForkCopiesThePartlyFilledBlockOfEveryGroup) {
  Start(100, {}, {0, 6});
  Sequence* a = Add(14);
  Step();
  Sequence* b = Make(14);
  b->arrival = a->arrival;
  b->index = 1;
  b->tokens = a->tokens;
  scheduler_->Fork(*a, b);
  EXPECT_EQ(b->blocks, a->blocks);
  // Token 14 sees tokens 9 to 14: of the window's blocks two have gone.
  EXPECT_EQ(NumHeld(), 4 + 2);

  const std::vector<int32_t> before = a->blocks;
  const StepPlan plan = scheduler_->Plan();
  EXPECT_THAT(plan.block_copies,
              ElementsAre(std::pair(before[6], a->blocks[6]), std::pair(before[7], a->blocks[7])));
  EXPECT_EQ(b->blocks, before);
  scheduler_->Remove(a);
  scheduler_->Remove(b);
  EXPECT_EQ(NumHeld(), 0);
}

TEST_F(SchedulerTest, AKnownPromptIsFoundAlthoughItsBlocksHaveLeftTheWindow) {
  for (const std::vector<Window>& windows : {std::vector<Window>{6}, {0, 6}, {0, {6, true}}}) {
    Start(100, {}, windows);
    Sequence* a = Add(22, /*first_token=*/5);
    for (int i = 0; i < 30; ++i) Step();
    Sequence* b = Add(22, /*first_token=*/5);
    EXPECT_THAT(Step(), ElementsAre(std::pair(a, 1), std::pair(b, 2)));
    EXPECT_EQ(b->num_cached, 20);
    Step();
  }
}

TEST_F(SchedulerTest, ASequenceThatContinuesAnEndedOneComputesOnlyWhatIsNew) {
  for (const std::vector<Window>& windows :
       std::vector<std::vector<Window>>{{0}, {6}, {0, 6}, {0, 1, 9}, {0, {4, true}, {10, true}}}) {
    Start(100, {}, windows);
    Sequence* turn = Add(6);
    for (int i = 0; i < 5; ++i) Step();
    scheduler_->Remove(turn);  // 10 of its 11 tokens are computed: two blocks and half of one
    EXPECT_EQ(blocks_->num_free(), 100);

    Sequence* next = Continue(*turn, 2);
    scheduler_->Add(next);

    EXPECT_THAT(Step(), ElementsAre(std::pair(next, 3)));
    EXPECT_EQ(next->num_cached, 10);
    EXPECT_EQ(scheduler_->stats().num_cached_tokens, 10);
    scheduler_->Remove(next);
    EXPECT_EQ(blocks_->num_free(), 100);
  }
}

TEST_F(SchedulerTest, OneSequenceTakesOverTheLastBlock) {
  Start(100, {});
  Sequence* turn = Add(6);
  for (int i = 0; i < 5; ++i) Step();
  scheduler_->Remove(turn);
  Sequence* a = Continue(*turn, 2);
  Sequence* b = Continue(*turn, 2);
  scheduler_->Add(a);
  scheduler_->Add(b);
  EXPECT_THAT(Step(), ElementsAre(std::pair(a, 3), std::pair(b, 5)));
  EXPECT_EQ(b->num_cached, 8);
}

TEST_F(SchedulerTest, OtherTokensDoNotFindTheLastBlock) {
  Start(100, {});
  Sequence* turn = Add(6);
  for (int i = 0; i < 5; ++i) Step();
  scheduler_->Remove(turn);
  Sequence* other = Continue(*turn, 2);
  other->tokens[9] = 99;
  scheduler_->Add(other);
  EXPECT_THAT(Step(), ElementsAre(std::pair(other, 5)));
}

TEST_F(SchedulerTest, OlderWeightsLeaveNoLastBlock) {
  Start(100, {});
  Sequence* kept = Add(6);
  Sequence* ended = Add(6);
  for (int i = 0; i < 5; ++i) Step();
  scheduler_->Remove(ended);
  kept->may_publish = false;
  blocks_->SetRoot(RootHash("m", 2, ""));
  scheduler_->Remove(kept);
  for (const Sequence* turn : {kept, ended}) {
    Sequence* next = Continue(*turn, 1);
    scheduler_->Add(next);
    EXPECT_THAT(Step(), ElementsAre(std::pair(next, 12)));
    scheduler_->Remove(next);
  }
}

TEST_F(SchedulerTest, AForkThatEndsLeavesTheSharedBlockToTheOther) {
  Start(100, {});
  Sequence* a = Add(6);
  Step();
  Sequence* b = Make(6);
  b->arrival = a->arrival;
  b->index = 1;
  b->tokens = a->tokens;
  scheduler_->Fork(*a, b);
  scheduler_->Remove(a);
  Sequence* next = Continue(*a, 1);
  scheduler_->Add(next);
  EXPECT_THAT(Step(), ElementsAre(std::pair(b, 1), std::pair(next, 4)));
}

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
