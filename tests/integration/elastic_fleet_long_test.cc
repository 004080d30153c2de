// 200 updates while rollouts are killed, stopped, taken out and added at random: every sample's
// version spans are true.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/elastic_run.h"
#include "tests/support/run_processes.h"

namespace tandem {
namespace {

using ::tandem::testing::ElasticRun;
using ::tandem::testing::Eventually;
using ::tandem::testing::ProgramResult;

constexpr int64_t kSteps = 200;
constexpr int kPatience = 200;  // seconds; a test that reaches it has failed

TEST(ElasticFleetLong, SpansAreTrueOverTwoHundredUpdates) {
  std::mt19937_64 random(17);
  ElasticRun run(kSteps, /*max_staleness=*/2, "keep_recompute");
  std::vector<int> there = {run.AddRollout(), run.AddRollout()};
  run.Start();
  int64_t next = 3;
  while (true) {
    ASSERT_TRUE(run.AwaitStep(next));
    if (run.is_over()) break;
    const uint64_t event = random() % 4;
    if (there.size() >= 3 || (!there.empty() && event > 0)) {
      const size_t which = random() % there.size();
      const int victim = there[which];
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(which));
      if (event == 1) {
        run.KillRollout(victim);
      } else if (event == 2) {
        run.StopRollout(victim);
      } else {
        run.UnlistRollout(victim);
      }
    }
    if (there.empty() || random() % 2 == 0) {
      run.reward().Close();
      there.push_back(run.AddRollout());
      EXPECT_TRUE(Eventually([&] { return run.is_over() || run.LiveVersion(there.back()) >= 0; },
                             kPatience));
      run.reward().Open();
    }
    next = run.step() + 2 + static_cast<int64_t>(random() % 6);
  }
  const ProgramResult result = run.Wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const ElasticRun::SpanCheck check = run.ExpectTrueSpans(kSteps);
  EXPECT_GT(check.mixed_samples, 0);
  EXPECT_GT(check.contradicted, check.held_against_next / 2);
}

}  // namespace
}  // namespace tandem
