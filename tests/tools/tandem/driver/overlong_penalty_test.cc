#include "tools/tandem/driver/overlong_penalty.h"

#include <gtest/gtest.h>

namespace tandem::driver {
namespace {

// Equation 13 of 2503.14476, written as it stands there, times the factor.
double Reference(double length, double longest, double cache, double factor) {
  if (length <= longest - cache) return 0;
  if (length <= longest) return factor * ((longest - cache) - length) / cache;
  return -factor;
}

TEST(OverlongPenalty, IsThatOfDapo) {
  config::v1::OverlongBufferConfig buffer;
  buffer.set_len(16);
  buffer.set_penalty_factor(0.5);
  for (int64_t length = 0; length <= 64; ++length) {
    EXPECT_NEAR(OverlongPenalty(length, 64, buffer),
                Reference(static_cast<double>(length), 64, 16, 0.5), 1e-12)
        << length;
  }
  EXPECT_EQ(OverlongPenalty(48, 64, buffer), 0);
  EXPECT_EQ(OverlongPenalty(56, 64, buffer), -0.25);
  EXPECT_EQ(OverlongPenalty(64, 64, buffer), -0.5);
}

TEST(OverlongPenalty, IsTakenOffCompletionsAndBaselinesAndLeavesTheScores) {
  config::v1::RunConfig config;
  config.mutable_rollout()->set_max_tokens(8);
  config.mutable_reward()->mutable_overlong_buffer()->set_len(4);
  config.mutable_reward()->mutable_overlong_buffer()->set_penalty_factor(1);
  std::vector<Group> groups(1);
  groups[0].completions.resize(2);
  groups[0].completions[0].token_ids.assign(4, 1);
  groups[0].completions[1].token_ids.assign(6, 1);
  groups[0].baseline.emplace().token_ids.assign(8, 1);
  for (Completion* completion : groups[0].judged()) completion->score = completion->reward = 1;

  AddOverlongPenalty(config, groups);
  EXPECT_EQ(groups[0].completions[1].reward, 1);  // not enabled
  config.mutable_reward()->mutable_overlong_buffer()->set_enable(true);
  AddOverlongPenalty(config, groups);

  EXPECT_EQ(groups[0].completions[0].reward, 1);
  EXPECT_EQ(groups[0].completions[1].reward, 0.5);
  EXPECT_EQ(groups[0].completions[1].score, 1);
  EXPECT_EQ(groups[0].baseline->reward, 0);
}

}  // namespace
}  // namespace tandem::driver
