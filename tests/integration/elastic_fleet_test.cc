// Rollouts come and go while a run of mode async trains; every sample says truly which version
// sampled each of its tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/elastic_run.h"
#include "tests/support/run_processes.h"

namespace tandem {
namespace {

using ::tandem::testing::ElasticRun;
using ::tandem::testing::Eventually;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::testing::HasSubstr;

constexpr int kPatience = 200;  // seconds; a test that reaches it has failed

// One that joins: the run is held until it serves.
int Join(ElasticRun& run) {
  run.reward().Close();
  const int number = run.AddRollout();
  EXPECT_TRUE(Eventually([&] { return run.is_over() || run.LiveVersion(number) >= 0; }, kPatience));
  run.reward().Open();
  return number;
}

double SumOf(const std::string& run_dir, const std::string& metric) {
  double sum = 0;
  for (const auto& line : JsonLines(ReadWhole(run_dir + "/metrics.jsonl"))) {
    if (line.contains(metric)) sum += line[metric].get<double>();
  }
  return sum;
}

// What must be true of a run that is over.
void ExpectGoodRun(ElasticRun& run, int64_t total_steps, int64_t max_staleness) {
  const auto lines = JsonLines(ReadWhole(run.run_dir() + "/metrics.jsonl"));
  ASSERT_EQ(static_cast<int64_t>(lines.size()), total_steps + 1);
  for (const auto& line : lines) {
    if (line["training/global_step"] == 0) continue;
    EXPECT_LE(line["training/off_policy/trajectory_staleness/max"], max_staleness);
  }
  const ElasticRun::SpanCheck check = run.ExpectTrueSpans(total_steps);
  // How many there are depends on the machine; the long test sees some.
  ::testing::Test::RecordProperty("mixed_samples", static_cast<int>(check.mixed_samples));
  EXPECT_GT(check.contradicted, check.held_against_next / 2);
}

TEST(ElasticFleet, ARolloutIsKilledAndAnotherJoinsWhileTheRunGoesOn) {
  constexpr int64_t kSteps = 15;
  ElasticRun run(kSteps, /*max_staleness=*/2, "keep_recompute");
  run.AddRollout();
  run.AddRollout();
  run.Start();
  ASSERT_TRUE(run.AwaitStep(3));
  run.KillRollout(0);
  const int third = Join(run);
  ASSERT_TRUE(run.AwaitStep(7));
  // Nobody but the one that joined is left.
  run.UnlistRollout(1);
  ASSERT_TRUE(run.AwaitStep(10));
  // Nobody is left at all, until another one comes.
  run.reward().Close();
  run.KillRollout(third);
  Join(run);

  const ProgramResult result = run.Wait();

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rollout-0 at 127.0.0.1:"));
  EXPECT_THAT(result.err, HasSubstr("is LOST"));
  EXPECT_THAT(result.err, HasSubstr("is DRAINING: it is no longer in the list"));
  EXPECT_GE(SumOf(run.run_dir(), "fleet/joined"), 4);
  EXPECT_GE(SumOf(run.run_dir(), "fleet/left"), 2);
  ExpectGoodRun(run, kSteps, 2);
}

TEST(ElasticFleet, GroupsThatACommitAbortsGoOn) {
  constexpr int64_t kSteps = 8;
  ElasticRun run(kSteps, /*max_staleness=*/1, "abort");
  run.AddRollout();
  run.Start();
  const ProgramResult result = run.Wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectGoodRun(run, kSteps, 1);
}

}  // namespace
}  // namespace tandem
