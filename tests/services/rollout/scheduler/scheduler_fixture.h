// Drives a scheduler step by step, and checks what every step may use and what its windows show.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_FIXTURE_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "services/rollout/scheduler/scheduler.h"

namespace tandem::rollout {

class SchedulerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBlockSize = 4;

  void Start(int64_t num_blocks, const SchedulerOptions& options,
             const std::vector<model::Window>& windows = {0}) {
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

  std::vector<model::Window> windows_;
  std::map<std::pair<int32_t, int64_t>, BlockHash> contents_;  // by block and offset
  std::deque<Sequence> sequences_;
  std::unique_ptr<BlockManager> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_FIXTURE_H_
