// The run folder in the hands of real processes: two runs at once, a folder that goes away, a disk
// that is full, other inputs, files of other kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <utility>

#include "common/rpc/child_process.h"
#include "tests/support/addition_data.h"
#include "tests/support/interrupted_run.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::tandem::testing::BinaryPath;
using ::tandem::testing::Eventually;
using ::tandem::testing::ExpectWholeRun;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::SavingReplay;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> With(std::vector<std::string> args, std::vector<std::string> more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The arguments of `command` that an interrupted run resumes with: without checkpoints of its own.
std::vector<std::string> Unsaved(const TempFolder& folder, const std::string& command) {
  return command == "replay" ? With(SavingReplay(folder, "run"), {"--set", "trainer.save_freq=0"})
                             : With(TinyRun(folder, command), {"--set", "trainer.test_freq=0"});
}

// A run that goes on until it is stopped, past its first step.
std::unique_ptr<rpc::ChildProcess> StartLongRun(const TempFolder& folder,
                                                const std::string& command = "train") {
  rpc::ChildProcessOptions options;
  options.name = "tandem";
  options.argv = With({BinaryPath("tandem")},
                      With(Unsaved(folder, command), {"--set", "trainer.total_steps=100000"}));
  options.log_path = folder / "first.log";
  auto process = rpc::ChildProcess::Start(std::move(options));
  EXPECT_OK(process);
  const bool steps = Eventually(
      [&] {
        return ReadWhole(folder / "run/metrics.jsonl").find("actor/loss") != std::string::npos;
      },
      120);
  EXPECT_TRUE(steps) << ReadWhole(folder / "first.log");
  return *std::move(process);
}

// The inode of every file of a run that another one would move or write.
std::map<std::string, ino_t> FilesOf(const std::string& run_dir) {
  std::map<std::string, ino_t> files;
  for (const char* name : {"config.yaml", "metrics.jsonl", "updates.jsonl", "run_id", "run.lock",
                           "logs", "logs/config.yaml", "rollouts", "rollouts/1.jsonl"}) {
    struct stat info = {};
    EXPECT_EQ(::stat((run_dir + "/" + name).c_str(), &info), 0) << name;
    files[name] = info.st_ino;
  }
  return files;
}

TEST(RunFolder, ARunIsRefusedTheFolderOfOneThatGoesOn) {
  const TempFolder folder;
  const auto first = StartLongRun(folder);
  const std::map<std::string, ino_t> before = FilesOf(folder / "run");
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);

  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--resume"}}) {
    const ProgramResult second = RunProgram("tandem", With(TinyRun(folder, "train"), more));
    EXPECT_EQ(second.exit_code, 1) << second.err;
    EXPECT_THAT(second.err, AllOf(HasSubstr((folder / "run") + " is in use by process " +
                                            std::to_string(first->pid()) + " on host " + host),
                                  HasSubstr("another run_dir")));
  }
  const ProgramResult plan = RunProgram("tandem", With(TinyRun(folder, "train"), {"--dry-run"}));
  EXPECT_EQ(plan.exit_code, 0) << plan.err;

  EXPECT_EQ(FilesOf(folder / "run"), before);
  EXPECT_FALSE(fs::exists(folder / "run/previous-1"));
  EXPECT_TRUE(first->running()) << ReadWhole(folder / "first.log");

  // Killed as it is, it leaves its lock file; the kernel's lock is gone with it.
  ASSERT_EQ(::kill(first->pid(), SIGKILL), 0);
  ASSERT_TRUE(first->Wait(absl::Seconds(30)));
  EXPECT_TRUE(Eventually([&] { return tandem::testing::ServicesOf(folder / "run").empty(); }, 30));
  const ProgramResult next = RunProgram("tandem", TinyRun(folder, "train"));
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.err,
              HasSubstr("taking over the lock of process " + std::to_string(first->pid())));
  EXPECT_TRUE(fs::exists(folder / "run/previous-1/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(folder / "run/run.lock"));
}

TEST(RunFolder, ARunWhoseFolderIsRemovedEndsWithAnError) {
  const TempFolder folder;
  const auto run = StartLongRun(folder);

  fs::rename(folder / "run", folder / "gone");

  ASSERT_TRUE(run->Wait(absl::Seconds(120)));
  EXPECT_EQ(run->ExitDescription(), "exited with 1");
  EXPECT_THAT(ReadWhole(folder / "first.log"), HasSubstr((folder / "run") + " was removed"));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

class InterruptedRun : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(InterruptedRun, SavesItsLastStepAndResumesAfterIt) {
  const auto [command, signal] = GetParam();
  const TempFolder folder;
  const auto run = StartLongRun(folder, command);

  ASSERT_EQ(::kill(run->pid(), signal), 0);

  ASSERT_TRUE(run->Wait(absl::Seconds(120)));
  const std::string log = ReadWhole(folder / "first.log");
  EXPECT_EQ(run->ExitDescription(), "exited with 130") << log;
  const int64_t last =
      JsonLines(ReadWhole(folder / "run/metrics.jsonl")).back()["training/global_step"];
  const std::string checkpoint = (folder / "run/checkpoints/step-") + std::to_string(last);
  EXPECT_THAT(log, HasSubstr("interrupted after step " + std::to_string(last) +
                             "; its checkpoint is " + checkpoint));
  EXPECT_TRUE(fs::exists(checkpoint + "/manifest.json"));

  const ProgramResult resumed = RunProgram(
      "tandem", With(Unsaved(folder, command),
                     {"--resume", "--set", "trainer.total_steps=" + std::to_string(last + 1)}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step " + std::to_string(last)));
  const auto lines = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  const int64_t first = lines[0]["training/global_step"];
  EXPECT_EQ(first, std::string(command) == "train" ? 0 : 1);  // only rollouts have a step 0
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["training/global_step"], first + static_cast<int64_t>(i));
  }
  EXPECT_EQ(lines.back()["training/global_step"], last + 1);
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptedRun,
                         ::testing::Values(std::pair("train", SIGINT), std::pair("train", SIGTERM),
                                           std::pair("replay", SIGINT)),
                         [](const auto& info) {
                           return std::string(info.param.first) +
                                  (info.param.second == SIGINT ? "Int" : "Term");
                         });

TEST(RunFolder, AShortRunThatHasEndedIsExtended) {
  const TempFolder folder;
  const std::vector<std::string> args = Unsaved(folder, "sft");  // ends within the save interval
  ASSERT_EQ(RunProgram("tandem", With(args, {"--set", "trainer.total_steps=2"})).exit_code, 0);

  const ProgramResult extended =
      RunProgram("tandem", With(args, {"--resume", "--set", "trainer.total_steps=3"}));

  EXPECT_EQ(extended.exit_code, 0) << extended.err;
  EXPECT_THAT(extended.err, HasSubstr("resuming after step 2"));
  EXPECT_FALSE(fs::exists(folder / "run/previous-1"));
  EXPECT_EQ(JsonLines(ReadWhole(folder / "run/metrics.jsonl")).size(), 3);
}

TEST(RunFolder, ARunThatSavesNothingSaysSoAtItsStart) {
  const TempFolder folder;

  const ProgramResult result = RunProgram(
      "tandem", With(TinyRun(folder, "sft"),
                     {"--set", "trainer.test_freq=0", "--set", "trainer.save_interval_seconds=0"}));

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no checkpoints, and an interrupt loses every step"));
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints"));
}

TEST(RunFolder, AStartThatFailsChangesNothingOfTheRunBefore) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");
  ASSERT_EQ(RunProgram("tandem", args).exit_code, 0);
  const std::string metrics = ReadWhole(folder / "run/metrics.jsonl");
  const std::string run_id = ReadWhole(folder / "run/run_id");

  // The model's folder has a configuration that no trainer can start with.
  folder.Write("model/model.safetensors", "damaged");
  const ProgramResult failed =
      RunProgram("tandem", With(args, {"--set", "model.random_init=false", "--set", "seed=77"}));

  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_EQ(ReadWhole(folder / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(ReadWhole(folder / "run/run_id"), run_id);
  EXPECT_THAT(ReadWhole(folder / "run/config.yaml"), Not(HasSubstr("seed: 77")));
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/step-8/manifest.json"));
  EXPECT_TRUE(fs::exists(folder / "run/model/model.safetensors"));
}

TEST(RunFolder, AFifoInACheckpointIsADamagedCheckpoint) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");
  ASSERT_EQ(RunProgram("tandem", args).exit_code, 0);
  for (const char* name : {"rank-1-of-2.bin", "manifest.json"}) {
    const std::string path = folder / (std::string("run/checkpoints/step-8/") + name);
    const std::string kept = folder / "kept";
    fs::rename(path, kept);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);

    const ProgramResult result = RunProgram("tandem", With(args, {"--resume"}), 60);

    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr(std::string(name) + ": expected a regular file"),
                                  HasSubstr("resuming after step 6")));
    ExpectWholeRun(folder / "run");
  }
}

TEST(RunFolder, ARunGoesOnWithOtherInputsOnlyWhereItIsTold) {
  const TempFolder folder;
  const std::vector<std::string> args = SavingReplay(folder, "run");
  ASSERT_EQ(RunProgram("tandem", With(args, {"--set", "trainer.total_steps=4"})).exit_code, 0);
  nlohmann::json config = nlohmann::json::parse(ReadWhole(folder / "model/config.json"));
  config["rope_theta"] = 123456.0;
  folder.Write("model/config.json", config.dump());
  std::string samples = ReadWhole(folder / "samples.jsonl");
  samples.replace(samples.find("\"rewards\":"), 10, "\"rewards\":1");  // 0.5 becomes 10.5
  folder.Write("samples.jsonl", samples);
  const std::string before = ReadWhole(folder / "run/config.yaml");

  const ProgramResult refused = RunProgram("tandem", With(args, {"--resume"}));
  const ProgramResult in_part =
      RunProgram("tandem", With(args, {"--resume", "--allow-changed=data"}));
  EXPECT_EQ(ReadWhole(folder / "run/config.yaml"), before);
  const ProgramResult allowed =
      RunProgram("tandem", With(args, {"--resume", "--allow-changed=data,config"}));
  const ProgramResult misuse =
      RunProgram("tandem", With(args, {"--resume", "--allow-changed=weather"}));

  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("config: " + (folder / "model/config.json") +
                                           ": expected the digest"),
                                 HasSubstr("data: " + (folder / "samples.jsonl")),
                                 HasSubstr("--allow-changed=config,data")));
  EXPECT_EQ(in_part.exit_code, 1);
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_THAT(allowed.err, HasSubstr("resuming after step 4"));
  EXPECT_EQ(misuse.exit_code, 2);
  ExpectWholeRun(folder / "run");
}

TEST(RunFolder, ADiskWithoutRoomForTheModelIsFoundAtTheStart) {
  const TempFolder folder;
  const std::vector<std::string> args =
      With(SavingReplay(folder, "run"), {"--set", "run_dir=" + (folder / "disk/run")});
  fs::create_directory(folder / "disk");
  std::string command = "mount -t tmpfs -o size=4m tmpfs '" + (folder / "disk") + "' && exec '" +
                        BinaryPath("tandem") + "'";
  for (const std::string& arg : args) command += " '" + arg + "'";
  // The mount is in a namespace of the command's own.
  const ProgramResult can_mount =
      RunProgram("/usr/bin/unshare", {"-m", "mount", "-t", "tmpfs", "tmpfs", folder / "disk"});
  if (can_mount.exit_code != 0) GTEST_SKIP() << "this user cannot mount: " << can_mount.err;

  const ProgramResult result = RunProgram("/usr/bin/unshare", {"-m", "/bin/sh", "-c", command});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("disk/run: the final model needs"), HasSubstr("are available")));
  EXPECT_THAT(result.err, Not(HasSubstr("replay 1/8")));
}

}  // namespace
}  // namespace tandem
