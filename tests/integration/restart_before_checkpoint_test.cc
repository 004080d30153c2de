// A driver that ends before the first checkpoint, against services that stay up.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/integration/rolling_restart.h"

namespace tandem {
namespace {

using ::tandem::testing::Eventually;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::SupervisedRun;
using ::tandem::testing::SupervisedRunOptions;

constexpr int64_t kSteps = 6;
const SupervisedRunOptions kOptions = {.total_steps = kSteps, .save_freq = 10, .is_exact = true};

// Step, row, sampled tokens and their log-probs, of every sample.
using Trained = std::vector<std::tuple<int64_t, int64_t, std::string, std::string>>;

Trained SamplesOf(const SupervisedRun& run) {
  Trained out;
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (const auto& sample :
         JsonLines(ReadWhole(run.run_dir() + "/rollouts/" + std::to_string(step) + ".jsonl"))) {
      out.emplace_back(step, sample["row"].get<int64_t>(), sample["response_ids"].dump(),
                       sample["logprobs"].dump());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST(RestartBeforeTheFirstCheckpoint, TrainsEveryPromptOnceAndComesToTheSameEnd) {
  SupervisedRun undisturbed(kOptions);
  ASSERT_TRUE(Eventually([&] { return undisturbed.finished(); }, kPatience)) << undisturbed.Logs();

  SupervisedRun run(kOptions);
  ASSERT_TRUE(Eventually([&] { return run.step() >= 2; }, kPatience)) << run.Logs();
  run.Kill("driver");
  ASSERT_TRUE(Eventually([&] { return run.finished(); }, kPatience)) << run.Logs();

  EXPECT_EQ(run.NumStarts("driver"), 2) << run.Logs();
  EXPECT_EQ(run.NumStarts("trainer-0"), 1);
  EXPECT_THAT(run.Logs(), ::testing::HasSubstr("but saved no checkpoint"));
  ExpectEveryPromptTrainedOnce(run.run_dir(), kSteps);
  EXPECT_EQ(SamplesOf(run), SamplesOf(undisturbed));
  const std::string weights = "/model/model.safetensors";
  EXPECT_TRUE(ReadWhole(run.run_dir() + weights) == ReadWhole(undisturbed.run_dir() + weights))
      << "the models differ";
}

}  // namespace
}  // namespace tandem
