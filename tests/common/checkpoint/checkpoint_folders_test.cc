#include "common/checkpoint/checkpoint_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::checkpoint {
namespace {

using ::tandem::testing::TempFolder;
using ::testing::ElementsAre;

std::vector<int64_t> StepsIn(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const RunCheckpoint& found : ListCheckpoints(folder)) steps.push_back(found.step);
  return steps;
}

TEST(CheckpointSchedule, AreListedNewestFirst) {
  const TempFolder folder;
  for (const char* name : {"step-2", "step-10", ".step-12.tmp-1-0", "step-x", "other"}) {
    std::filesystem::create_directory(folder / name);
  }

  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(10, 2));
  EXPECT_TRUE(ListCheckpoints(folder / "absent").empty());
}

TEST(CheckpointSchedule, KeepsTheNewestUpToTheStepThatWasWritten) {
  const TempFolder folder;
  for (int step = 1; step <= 6; ++step) {
    folder.Write(CheckpointName(step) + "/manifest.json", R"({"format": "tandem-checkpoint"})");
  }

  ASSERT_OK(RemoveOldCheckpoints(folder.path(), 5, 2));

  // Step 6 is of a life that this run did not go on from.
  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(6, 5, 4));
  ASSERT_OK(RemoveOldCheckpoints(folder.path(), 6, 0));
  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(6, 5, 4));
}

TEST(CheckpointSchedule, RemovesNoFolderThatIsNoCheckpoint) {
  const TempFolder folder;
  folder.Write("step-1/notes.txt", "x");
  folder.Write("step-2/manifest.json", R"({"format": "tandem-checkpoint"})");
  folder.Write("step-3/manifest.json", R"({"format": "tandem-checkpoint"})");

  ASSERT_OK(RemoveOldCheckpoints(folder.path(), 3, 1));

  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(3, 1));
}

TEST(CheckpointSchedule, RemovesWhatWasNotFinishedAndNothingElse) {
  const TempFolder folder;
  for (const char* name : {".step-4.tmp-77-0/rank-0-of-1.bin", ".step-1.removed/manifest.json",
                           ".config.yaml.tmp-77-1", "step-3/manifest.json", ".hidden"}) {
    folder.Write(name, "x");
  }

  ASSERT_OK(RemoveUnfinished(folder.path()));

  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("step-3", ".hidden"));
}

}  // namespace
}  // namespace tandem::checkpoint
