// The programs from outside, on a machine without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "tests/support/program.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

Tools ToolsIn(const TempFolder& folder) {
  return {.bin = std::filesystem::path(testing::BinaryPath("tandem")).parent_path().string(),
          .folder = folder.path(),
          .interrupted = {}};
}

TEST(GpuCheck, WithoutAGpuSaysWhatIsMissingAndFails) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
  const TempFolder folder;
  const std::string output = folder / "found.json";

  const ProgramResult result = RunProgram("tandem", {"gpu-check", "--output", output});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out + result.err,
              AllOf(HasSubstr("driver found: "), HasSubstr("needed: driver 580")));
  // A build for GPUs gets as far as the first check.
  if (!std::filesystem::exists(output)) return;
  const nlohmann::json found = nlohmann::json::parse(testing::ReadWhole(output));
  EXPECT_EQ(found["passed"], false);
  EXPECT_EQ(found["complete"], true);
  EXPECT_EQ(found["checks"]["facts"]["outcome"], "failed");
  EXPECT_EQ(found["checks"]["kernels"]["outcome"], "skipped");
  EXPECT_THAT(result.err, HasSubstr("failed: facts"));
}

TEST(GpuCheck, RefusesAnUnknownCheck) {
  EXPECT_EQ(RunProgram("tandem", {"gpu-check", "--only", "everything"}).exit_code, 2);
}

TEST(CheckDevice, PrintsALineBeforeAndAfterEachComparison) {
  const TempFolder folder;
  const ChildOutput output = ToolsIn(folder).RunDevice(
      "kernels", {"kernels", "--device", "cpu", "--small", "--from", "23"},
      absl::Now() + absl::Minutes(3));
  ASSERT_TRUE(output.status.ok()) << output.status;
  const CheckResult result = CompareKernels([&](int64_t) { return output; });

  EXPECT_EQ(result.outcome, Outcome::kPassed) << result.reason;
  EXPECT_EQ(result.measured["comparisons"].size(), 3);  // of weights
  EXPECT_EQ(output.objects.size(), 6);
}

TEST(LoseRank, TheOtherRankNoticesAndSaysWhat) {
  for (const std::string backend : {"gloo", "shared_memory"}) {
    const TempFolder folder;
    const CheckResult result =
        LoseRank(ToolsIn(folder), "cpu", backend, absl::Now() + absl::Minutes(1));

    EXPECT_EQ(result.outcome, Outcome::kPassed) << backend << ": " << result.reason;
    EXPECT_EQ(result.measured["sums"], 3);
    EXPECT_THAT(result.measured["error"].get<std::string>(), HasSubstr("'sum'"));
    EXPECT_LT(result.measured["seconds_to_notice"], 12);
    EXPECT_EQ(result.measured["other_rank"], "killed by SIGKILL");
  }
}

}  // namespace
}  // namespace tandem::gpu_check
