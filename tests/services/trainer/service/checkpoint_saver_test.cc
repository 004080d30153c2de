#include "services/trainer/service/checkpoint_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

// One rank, whose files are complete at once, and whose writer ends when the test says so.
struct Rank {
  SnapshotState state{.running = true};
  int num_snapshots = 0;

  absl::StatusOr<std::vector<RankResult>> Run(Opcode opcode, const std::string& payload) {
    if (opcode == Opcode::kSnapshotState) {
      if (payload == "wait") state.running = false;
      return std::vector<RankResult>{{.payload = state.Encode()}};
    }
    ++num_snapshots;
    std::ofstream(payload + "/rank-0.bin") << "elements";
    std::ofstream(payload + "/rank-0.json") << "{}";
    return std::vector<RankResult>{{.payload = "rank-0"}};
  }
};

void Await(const std::string& path) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!std::filesystem::exists(path) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_TRUE(std::filesystem::exists(path));
}

TEST(CheckpointSaver, HasEndedOnceTheRanksWritersHaveAlsoIfTheirFilesAreComplete) {
  const testing::TempFolder folder;
  Rank rank;
  CheckpointSaver saver(
      [&](Opcode opcode, const std::string& payload) { return rank.Run(opcode, payload); },
      /*keep_last=*/2);
  CheckpointSaver::Contents contents;
  contents.manifest.step = 4;
  ASSERT_OK(saver.Begin(folder / "step-4", contents));
  Await(folder / "step-4");
  // The commit thread may still have its last lines to go.
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto early, saver.Settle(/*wait=*/false));
    ASSERT_FALSE(early.has_value());
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(saver.in_flight());

  rank.state.running = false;
  ASSERT_OK_AND_ASSIGN(const auto outcome, saver.Settle(/*wait=*/true));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->step(), 4);
  EXPECT_EQ(outcome->error(), "");
  EXPECT_FALSE(saver.in_flight());
  EXPECT_EQ(rank.num_snapshots, 1);
}

}  // namespace
}  // namespace tandem::trainer
