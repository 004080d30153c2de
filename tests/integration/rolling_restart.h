// A rolling restart: each process of a run is terminated once, one after another, while it trains.
#ifndef TANDEM_TESTS_INTEGRATION_ROLLING_RESTART_H_
#define TANDEM_TESTS_INTEGRATION_ROLLING_RESTART_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/supervised_run.h"

namespace tandem {

// Seconds; a wait that reaches it has failed.
inline constexpr int kPatience = 180;

// Every step is there once and in order, with a version of its own, and every row of the data was
// trained on once.
inline void ExpectEveryPromptTrainedOnce(const std::string& run_dir, int64_t total_steps) {
  std::vector<int64_t> steps, expected;
  double version = -1;
  for (const auto& row : testing::JsonLines(testing::ReadWhole(run_dir + "/metrics.jsonl"))) {
    const int64_t step = row["training/global_step"];
    if (step > 0) steps.push_back(step);
    EXPECT_GT(row["training/policy_version"].get<double>(), version) << "step " << step;
    version = row["training/policy_version"];
  }
  for (int64_t step = 1; step <= total_steps; ++step) expected.push_back(step);
  EXPECT_EQ(steps, expected);
  std::map<int64_t, int64_t> trained;  // samples of each row
  for (int64_t step = 1; step <= total_steps; ++step) {
    const std::string path = run_dir + "/rollouts/" + std::to_string(step) + ".jsonl";
    const auto samples = testing::JsonLines(testing::ReadWhole(path));
    EXPECT_EQ(samples.size(), testing::SupervisedRun::kPrompts * testing::SupervisedRun::kSamples)
        << path;
    for (const auto& sample : samples) ++trained[sample["row"].get<int64_t>()];
  }
  EXPECT_EQ(trained.size(), total_steps * testing::SupervisedRun::kPrompts);
  for (const auto& [row, count] : trained) {
    EXPECT_EQ(count, testing::SupervisedRun::kSamples) << "row " << row;
  }
  EXPECT_FALSE(
      std::filesystem::exists(run_dir + "/rollouts/" + std::to_string(total_steps + 1) + ".jsonl"));
  EXPECT_TRUE(std::filesystem::exists(run_dir + "/model/model.safetensors"));
}

inline void RestartInTurn(const testing::SupervisedRunOptions& options,
                          const std::vector<std::string>& names) {
  testing::SupervisedRun run(options);
  if (absl::IsPermissionDenied(run.status())) {
    GTEST_SKIP() << "network namespaces: " << run.status().message();
  }
  ASSERT_TRUE(run.status().ok()) << run.status();
  // What comes before the first checkpoint is made again: restart_before_checkpoint_test.
  const std::string first =
      run.run_dir() + "/checkpoints/step-" + std::to_string(options.save_freq);
  ASSERT_TRUE(testing::Eventually([&] { return std::filesystem::exists(first); }, kPatience))
      << run.Logs();
  int64_t step = 0;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    // It trains, and goes on after the one before.
    ASSERT_TRUE(testing::Eventually([&] { return run.step() > step; }, kPatience)) << run.Logs();
    ASSERT_FALSE(run.finished()) << "the run was over too soon to restart anything";
    const int64_t starts = run.NumStarts(name);
    step = run.step() + 1;
    // A rank that is told alone goes on for its grace of 20 s; the run is not to be over by then.
    const bool is_lone_rank = name == "trainer-1";
    if (is_lone_rank) run.reward().Close();
    run.Terminate(name);
    ASSERT_TRUE(testing::Eventually([&] { return run.NumStarts(name) > starts; }, kPatience))
        << run.Logs();
    if (is_lone_rank) run.reward().Open();
  }
  ASSERT_TRUE(testing::Eventually([&] { return run.finished(); }, kPatience)) << run.Logs();
  ExpectEveryPromptTrainedOnce(run.run_dir(), options.total_steps);
  if (::testing::Test::HasFailure()) ADD_FAILURE() << run.Logs();
}

}  // namespace tandem

#endif  // TANDEM_TESTS_INTEGRATION_ROLLING_RESTART_H_
