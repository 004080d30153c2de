#include "tools/tandem/driver/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "common/config/load.h"
#include "common/io/jsonl.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

config::v1::RunConfig ConfigIn(const std::string& run_dir) {
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.set_run_dir(run_dir);
  return config;
}

TEST(RunFolder, WritesOneLineOfMetricsAStep) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));

  ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  ASSERT_OK(folder.WriteMetrics(2, {{"actor/loss", 0.25}}));

  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["training/global_step"], 2);
  EXPECT_EQ(rows[1]["actor/loss"], 0.25);
}

// Unnamed files of `size_bytes` that this process holds open.
int NumReserves(int64_t size_bytes) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat file {};
    if (stat(entry.path().c_str(), &file) != 0 || !S_ISREG(file.st_mode)) continue;
    count += file.st_nlink == 0 && file.st_size == size_bytes ? 1 : 0;
  }
  return count;
}

TEST(RunFolder, ReservesSpaceForTheBestModelTooAndAgainForTheNext) {
  constexpr int64_t kBytes = 123457;
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  ASSERT_OK(folder.ReserveModelSpace(kBytes));
  if (NumReserves(kBytes) == 0) GTEST_SKIP() << "this file system cannot reserve space";
  EXPECT_EQ(NumReserves(kBytes), 1);

  ASSERT_OK(folder.ReserveModelSpace(kBytes, /*keeps_best=*/true));
  EXPECT_EQ(NumReserves(kBytes), 2);
  ASSERT_OK(folder.SaveBest({.step = 1, .metric = "val/loss", .value = 0.5}, [&] {
    EXPECT_EQ(NumReserves(kBytes), 1);
    return absl::OkStatus();
  }));
  EXPECT_EQ(NumReserves(kBytes), 2);
  folder.ReleaseModelSpace();
  EXPECT_EQ(NumReserves(kBytes), 1);
}

// Leaves what a run leaves.
void RunOnce(const TempFolder& temp) {
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  ASSERT_OK(folder.KeepRunId("first"));
  ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  temp.Write("run/logs/trainer-0.log", "said");
  temp.Write("run/model/config.json", "{}");
  temp.Write("run/model/model.safetensors", "x");
  temp.Write("run/checkpoints/step-1/manifest.json", "x");
}

// Every file under a folder with its bytes, but for the lock.
std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == io::kLockFile) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[std::filesystem::relative(entry.path(), folder)] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

TEST(RunFolder, SetsAsideWhatAnEarlierRunLeftOnceTheRunHasBegun) {
  const TempFolder temp;
  RunOnce(temp);
  const std::map<std::string, std::string> before = FilesIn(temp / "run");

  {
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
    ASSERT_OK(folder.KeepRunId("second"));
    ASSERT_OK(folder.WriteMetrics(0, {{"actor/loss", 0.75}}));
    trainer::v1::PublishWeightsResponse update;
    update.set_policy_version(3);
    ASSERT_OK(folder.WriteUpdate(0, update));
    ASSERT_OK(folder.WriteRollouts(1, {}, 1.0));
    ASSERT_OK(folder.WriteEvaluation(0, {}, 0.0));
    EXPECT_FALSE(folder.has_begun());
    // A run that ends here has changed nothing.
    EXPECT_EQ(FilesIn(temp / "run"), before);

    ASSERT_OK(folder.Begin());
    ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.25}}));
  }

  EXPECT_EQ(FilesIn(temp / "run/previous-1"), before);
  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0]["actor/loss"], 0.75);
  EXPECT_EQ(rows[1]["actor/loss"], 0.25);
  ASSERT_OK_AND_ASSIGN(const auto updates, io::ReadJsonLines(temp / "run/updates.jsonl"));
  EXPECT_EQ(updates.size(), 1);
  EXPECT_EQ(FilesIn(temp / "run").at("run_id"), "second\n");
  EXPECT_TRUE(std::filesystem::exists(temp / "run/rollouts/1.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(temp / "run/evaluations/0.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/model"));
}

TEST(RunFolder, MakesRoomForTheLogsOfServicesThatItsRunStarts) {
  const TempFolder temp;
  RunOnce(temp);

  ASSERT_OK_AND_ASSIGN(RunFolder folder,
                       RunFolder::Create(ConfigIn(temp / "run"), {.starts_services = true}));
  temp.Write("run/logs/trainer-0.log", "says");
  EXPECT_TRUE(std::filesystem::exists(temp / "run/metrics.jsonl"));
  ASSERT_OK(folder.Begin());

  EXPECT_EQ(FilesIn(temp / "run").at("logs/trainer-0.log"), "says");
  EXPECT_EQ(FilesIn(temp / "run").at("previous-1/logs/trainer-0.log"), "said");
  EXPECT_TRUE(std::filesystem::exists(temp / "run/previous-1/metrics.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/previous-2"));
}

TEST(RunFolder, LeavesTheLogsOfAnEarlierRunUntilItsOwnAreWritten) {
  const TempFolder temp;
  RunOnce(temp);
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  EXPECT_EQ(FilesIn(temp / "run").at("logs/trainer-0.log"), "said");

  ASSERT_OK(folder.MoveLogsAside());
  temp.Write("run/logs/reward.log", "judging");
  ASSERT_OK(folder.MoveLogsAside());  // once is enough
  ASSERT_OK(folder.Begin());
  ASSERT_OK(folder.MoveLogsAside());  // they are this run's

  const std::map<std::string, std::string> files = FilesIn(temp / "run");
  EXPECT_EQ(files.at("logs/reward.log"), "judging");
  EXPECT_EQ(files.at("previous-1/logs/trainer-0.log"), "said");
  EXPECT_EQ(files.count("previous-1/metrics.jsonl"), 1);
  EXPECT_FALSE(std::filesystem::exists(temp / "run/previous-2"));
}

TEST(RunFolder, AnnouncesWhereTheFilesOfAnEarlierRunGo) {
  const TempFolder temp;
  std::vector<std::string> notes;
  RunFolder::Options options;
  options.note = [&notes](const std::string& text) { notes.push_back(text); };
  { ASSERT_OK_AND_ASSIGN(RunFolder fresh, RunFolder::Create(ConfigIn(temp / "other"), options)); }
  EXPECT_TRUE(notes.empty());
  RunOnce(temp);

  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run"), options));
  ASSERT_EQ(notes.size(), 1);
  EXPECT_THAT(notes[0], AllOf(HasSubstr("holds an earlier run"), HasSubstr("previous-N"),
                              HasSubstr("--resume")));
  ASSERT_OK(folder.Begin());

  ASSERT_EQ(notes.size(), 2);
  EXPECT_THAT(notes[1],
              HasSubstr("moved the files of the earlier run to " + (temp / "run/previous-1")));
}

TEST(RunFolder, PromisesNoResumptionOfARunWithoutACheckpoint) {
  const TempFolder temp;
  RunOnce(temp);
  std::filesystem::remove_all(temp / "run/checkpoints");
  for (const bool starts_services : {false, true}) {
    RunFolder::Options options;
    options.starts_services = starts_services;
    std::vector<std::string> notes;
    options.note = [&notes](const std::string& text) { notes.push_back(text); };

    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run"), options));

    ASSERT_EQ(notes.size(), 1);
    EXPECT_THAT(notes[0], AllOf(HasSubstr("holds an earlier run"),
                                HasSubstr("it has no checkpoint from which it could continue"),
                                Not(HasSubstr("--resume"))));
  }
}

TEST(RunFolder, IsRefusedWhileAnotherRunGoesOnInIt) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  temp.Write("run/checkpoints/.step-2.tmp-1-1/rank-0-of-1.bin", "being written");
  const std::map<std::string, std::string> before = FilesIn(temp / "run");

  for (const absl::Status& status : {RunFolder::Create(ConfigIn(temp / "run")).status(),
                                     RunFolder::Reopen(ConfigIn(temp / "run")).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("is in use by process " + std::to_string(getpid()))));
  }
  EXPECT_EQ(FilesIn(temp / "run"), before);
}

TEST(RunFolder, EveryWriteFindsThatTheFolderIsGone) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));

  std::filesystem::remove_all(temp / "run");

  for (const absl::Status& status :
       {folder.Check(), folder.WriteMetrics(2, {}), folder.WriteRollouts(2, {}, 1.0),
        folder.WriteUpdate(2, {}), folder.SyncMetrics(), folder.ReserveModelSpace(1),
        folder.Truncate({}).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr(temp / "run")));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "run"));
}

TEST(RunFolder, FindsAtTheStartThatTheModelHasNoPlace) {
  const TempFolder temp;
  temp.Write("run/model/notes.txt", "mine");

  EXPECT_THAT(RunFolder::Create(ConfigIn(temp / "run")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("run/model"), HasSubstr("notes.txt"))));
}

v1::DriverState StateAfter(int64_t step) {
  v1::DriverState state;
  state.set_step(step);
  (*state.mutable_metrics())["actor/loss"] = 0.125;
  return state;
}

TEST(RunFolder, IsTruncatedToTheStepThatARunResumesFrom) {
  const TempFolder temp;
  {
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
    for (const int step : {0, 1, 2, 3, 4}) {
      ASSERT_OK(folder.WriteMetrics(step, {{"actor/loss", 0.5}}));
      ASSERT_OK(folder.WriteRollouts(step, {}, 1.0));
      ASSERT_OK(folder.WriteEvaluation(step, {}, 0.0));
      temp.Write("run/checkpoints/step-" + std::to_string(step) + "/manifest.json", "x");
    }
    temp.Write("run/checkpoints/.step-5.tmp-1-1/rank-0-of-1.bin", "x");
  }

  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Reopen(ConfigIn(temp / "run")));
  ASSERT_OK_AND_ASSIGN(const auto kept, folder.Truncate(StateAfter(2)));
  ASSERT_OK(folder.WriteMetrics(3, {{"actor/loss", 0.25}}));

  EXPECT_EQ(kept.size(), 3);
  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 4);
  EXPECT_EQ(rows[2]["actor/loss"], 0.5);
  EXPECT_EQ(rows[3]["actor/loss"], 0.25);
  EXPECT_TRUE(std::filesystem::exists(temp / "run/rollouts/2.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/rollouts/3.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(temp / "run/evaluations/2.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/evaluations/3.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(temp / "run/checkpoints/step-2"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/checkpoints/step-3"));
  EXPECT_TRUE(std::filesystem::exists(temp / "run/previous-1/checkpoints/step-4"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run/checkpoints/.step-5.tmp-1-1"));
}

// Saves a best model of `step`, replacing the folder like the trainer does.
absl::Status SaveBest(RunFolder& folder, const TempFolder& temp, int64_t step,
                      absl::Status outcome = absl::OkStatus()) {
  return folder.SaveBest({.step = step, .metric = "val/loss", .value = 0.5}, [&] {
    temp.Write("run/new/model.safetensors", std::to_string(step));
    if (std::filesystem::exists(temp / "run/best")) {
      std::filesystem::rename(temp / "run/best", temp / "run/old");
    }
    std::filesystem::rename(temp / "run/new", temp / "run/best");
    std::filesystem::remove_all(temp / "run/old");
    return outcome;
  });
}

TEST(RunFolder, KeepsTheBestModelOnlyOfStepsThatAResumedRunHas) {
  for (const int64_t step : {6, 5}) {
    const TempFolder temp;
    {
      ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
      EXPECT_FALSE(folder.ReadBest().has_value());
      ASSERT_OK(SaveBest(folder, temp, 3));
      ASSERT_OK(SaveBest(folder, temp, 6));
      ASSERT_TRUE(folder.ReadBest().has_value());
      EXPECT_EQ(folder.ReadBest()->step, 6);
      EXPECT_EQ(folder.ReadBest()->metric, "val/loss");
    }
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Reopen(ConfigIn(temp / "run")));

    ASSERT_OK(folder.Truncate(StateAfter(step)));

    const std::map<std::string, std::string> files = FilesIn(temp / "run");
    EXPECT_EQ(folder.ReadBest().has_value(), step == 6);
    EXPECT_EQ(files.count("best/model.safetensors"), step == 6 ? 1 : 0);
    EXPECT_EQ(files.count("best.json"), step == 6 ? 1 : 0);
    EXPECT_EQ(files.count("previous-1/best/model.safetensors"), step == 6 ? 0 : 1);
    EXPECT_EQ(files.count("previous-1/best.json"), step == 6 ? 0 : 1);
  }
}

TEST(RunFolder, TakesNoModelForThatOfAnotherStepIfSavingItFails) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  ASSERT_OK(SaveBest(folder, temp, 3));
  const auto fails = [] { return absl::ResourceExhaustedError("disk full"); };

  EXPECT_FALSE(folder.SaveBest({.step = 6, .metric = "val/loss", .value = 0.4}, fails).ok());
  ASSERT_TRUE(folder.ReadBest().has_value());
  EXPECT_EQ(folder.ReadBest()->step, 3);

  EXPECT_FALSE(SaveBest(folder, temp, 6, absl::UnavailableError("no response")).ok());
  EXPECT_FALSE(folder.ReadBest().has_value());
  ASSERT_OK(folder.Truncate(StateAfter(8)));
  EXPECT_EQ(FilesIn(temp / "run").count("previous-1/best/model.safetensors"), 1);
}

TEST(RunFolder, AddsTheStepsLineWhereItWasLost) {
  const TempFolder temp;
  {
    ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
    ASSERT_OK(folder.WriteMetrics(1, {{"actor/loss", 0.5}}));
  }
  std::ofstream(temp / "run/metrics.jsonl", std::ios::app) << R"({"training/global_st)";

  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Reopen(ConfigIn(temp / "run")));
  ASSERT_OK(folder.Truncate(StateAfter(2)));

  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["training/global_step"], 2);
  EXPECT_EQ(rows[1]["actor/loss"], 0.125);
}

TEST(RunFolder, WritesSamplesInTheFormThatReplayReads) {
  const TempFolder temp;
  ASSERT_OK_AND_ASSIGN(RunFolder folder, RunFolder::Create(ConfigIn(temp / "run")));
  Group group;
  group.prompt.row = 3;
  group.prompt.token_ids = {1, 2};
  Completion& completion = group.completions.emplace_back();
  completion.token_ids = {5, 0};
  completion.processed_logprobs = {-0.5f, -0.25f};
  completion.reward = 0.75;
  completion.finish_reason = common::v1::FINISH_REASON_STOP;

  ASSERT_OK(folder.WriteRollouts(4, {group}, 1.0));
  ASSERT_OK(folder.WriteEvaluation(4, {group}, 0.0));

  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(temp / "run/rollouts/4.jsonl"));
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0]["prompt_ids"], (std::vector<int>{1, 2}));
  EXPECT_EQ(rows[0]["response_ids"], (std::vector<int>{5, 0}));
  EXPECT_EQ(rows[0]["rewards"], 0.75);
  EXPECT_EQ(rows[0]["group"], "4/0");
  EXPECT_EQ(rows[0]["row"], 3);
  EXPECT_EQ(rows[0]["finish_reason"], "stop");
  ASSERT_OK_AND_ASSIGN(const auto judged, io::ReadJsonLines(temp / "run/evaluations/4.jsonl"));
  ASSERT_EQ(judged.size(), 1);
  EXPECT_EQ(judged[0]["response_ids"], (std::vector<int>{5, 0}));
  EXPECT_EQ(judged[0]["temperature"], 0.0);
}

}  // namespace
}  // namespace tandem::driver
