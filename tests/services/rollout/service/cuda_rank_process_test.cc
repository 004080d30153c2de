// A replica of several ranks that share a GPU, over NCCL: it samples what one rank on a CPU
// samples, sleeps and wakes, and ends when a rank is lost in the middle of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/services/rollout/service/rank_processes.h"
#include "tests/support/addition_data.h"
#include "tests/support/cuda_device.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;

class CudaRankProcessTest : public RankProcessTest {
 protected:
  void SetUp() override {
    TANDEM_SKIP_WITHOUT_CUDA();
    RankProcessTest::SetUp();
  }
};

TEST_F(CudaRankProcessTest, SamplesWhatOneRankOnACpuDoes) {
  const TempFolder folder;
  folder.Write("in.jsonl", R"({"ids": [1, 80, 147]})");
  const ProgramResult whole = RunProgram(
      "tandem", {"generate", "--model", testing::TestData(kStories), "--input", folder / "in.jsonl",
                 "--max-tokens", "100", "--temperature", "0", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto ids = JsonLines(whole.out)[0]["ids"].get<std::vector<uint32_t>>();

  Start(2, 60, /*shared_memory=*/true, "cuda:0");
  std::vector<uint32_t> split;
  ASSERT_OK(Generate(static_cast<int64_t>(ids.size()), split));
  EXPECT_EQ(split, ids);
  ExpectTheSameAfterSleep(ids);
}

TEST_F(CudaRankProcessTest, ALostRankEndsItsRequests) {
  Start(2, 6, /*shared_memory=*/true, "cuda:0");
  std::vector<uint32_t> ids;
  const absl::Status status = Generate(500, ids, [&] { kill(ranks_[1]->pid(), SIGKILL); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 1 ("));
  ASSERT_TRUE(ranks_[0]->Wait(kTimeout));
  EXPECT_EQ(ranks_[0]->ExitDescription(), "exited with 1");
}

}  // namespace
}  // namespace tandem::rollout
