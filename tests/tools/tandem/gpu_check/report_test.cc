#include "tools/tandem/gpu_check/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::gpu_check {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Report MakeReport() {
  CheckResult decoding;
  decoding.summary = "batch 1: 700 tokens/s";
  decoding.fell_back = {"rollout-0: capturing a CUDA graph failed"};
  decoding.measured["batch_1"] = {{"share_of_limit", 0.5}};
  Report report;
  report.version = "0.1.0";
  report.started = absl::FromUnixSeconds(0);
  report.seconds = 12.5;
  report.num_checks = 2;
  report.ran = {{"decoding", "decoding", 9.5, decoding},
                {"lost_rank", "a killed rank", 0, Skipped("one GPU")}};
  return report;
}

TEST(Report, HasOneFormInJson) {
  EXPECT_EQ(ToJson(MakeReport()), nlohmann::json::parse(R"({
    "format": 1, "tandem": "0.1.0", "started": "1970-01-01T00:00:00Z", "seconds": 12.5,
    "complete": true, "passed": true,
    "checks": {
      "decoding": {"outcome": "passed", "seconds": 9.5,
                   "fell_back": ["rollout-0: capturing a CUDA graph failed"],
                   "measured": {"batch_1": {"share_of_limit": 0.5}}},
      "lost_rank": {"outcome": "skipped", "seconds": 0.0, "reason": "one GPU", "fell_back": [],
                    "measured": {}}}})"));
}

TEST(Report, HasNotPassedBeforeItIsCompleteOrWithAFailure) {
  Report report = MakeReport();
  report.num_checks = 3;
  EXPECT_EQ(ToJson(report)["complete"], false);
  EXPECT_EQ(ToJson(report)["passed"], false);

  report.ran.push_back({"training", "training", 1, Failed("out of memory")});
  EXPECT_EQ(ToJson(report)["complete"], true);
  EXPECT_EQ(ToJson(report)["passed"], false);
  EXPECT_EQ(ToJson(report)["checks"]["training"]["reason"], "out of memory");
}

TEST(Report, TheTableSaysWhatFellBackAndWhatFailed) {
  Report report = MakeReport();
  report.ran.push_back({"training", "training", 1, Failed("out of memory\nrank 0")});

  EXPECT_THAT(Table(report.ran),
              AllOf(HasSubstr("batch 1: 700 tokens/s\n         fell back: rollout-0: capturing"),
                    HasSubstr("skipped  a killed rank"), HasSubstr("one GPU"),
                    HasSubstr("failed   training"),
                    HasSubstr("\n         out of memory\n         rank 0\n")));
}

}  // namespace
}  // namespace tandem::gpu_check
