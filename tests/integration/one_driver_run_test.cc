// Several drivers and trainers that want the same services, as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/elastic_run.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

using ::tandem::testing::BinaryPath;
using ::tandem::testing::Eventually;
using ::tandem::testing::GatedReward;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPatience = 120;  // seconds; a test that reaches it has failed

// A process that has said where it serves.
struct Service {
  std::unique_ptr<rpc::ChildProcess> process;
  std::string address;
};

class OneDriverRunTest : public ::testing::Test {
 protected:
  OneDriverRunTest() { config_ = testing::TinyRun(folder_, "train").back(); }

  Service Start(const std::string& program, const std::string& name,
                const std::vector<std::string>& sets) {
    const std::string ready = folder_ / (name + ".ready");
    rpc::ChildProcessOptions options;
    options.name = name;
    options.argv = {BinaryPath(program),
                    "--config",
                    config_,
                    "--set",
                    "run_dir=" + Runs(),
                    "--set",
                    "trainer.ranks=1",
                    "--listen",
                    "127.0.0.1:0",
                    "--ready-file",
                    ready};
    for (const std::string& set : sets) options.argv.insert(options.argv.end(), {"--set", set});
    options.log_path = folder_ / (name + ".log");
    Service service;
    auto process = rpc::ChildProcess::Start(std::move(options));
    EXPECT_OK(process.status());
    if (!process.ok()) return service;
    service.process = *std::move(process);
    auto address = rpc::WaitForReadyFile(ready, *service.process, absl::Seconds(kPatience));
    EXPECT_OK(address.status()) << ReadWhole(folder_ / (name + ".log"));
    service.address = address.value_or("");
    return service;
  }

  // Under which the runs' folders lie, and the trainers may write.
  std::string Runs() const { return folder_ / "runs"; }

  // Arguments of a run into the folder runs/`name`.
  std::vector<std::string> Run(const std::string& name, const Service& trainer,
                               const Service& rollout, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"train", "--config", config_};
    for (const std::string& set :
         {"run_dir=" + Runs() + "/" + name, "trainer.endpoint=" + trainer.address,
          "rollout.endpoints=[\"" + rollout.address + "\"]", std::string("trainer.ranks=1"),
          std::string("trainer.test_freq=0"), std::string("reward.name=service"),
          "reward.endpoint=" + reward_.address(), std::string("reward.timeout_s=200")}) {
      args.insert(args.end(), {"--set", set});
    }
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  std::unique_ptr<rpc::ChildProcess> Launch(const std::string& name,
                                            const std::vector<std::string>& args) {
    rpc::ChildProcessOptions options;
    options.name = name;
    options.argv = {BinaryPath("tandem")};
    options.argv.insert(options.argv.end(), args.begin(), args.end());
    options.log_path = Log(name);
    auto process = rpc::ChildProcess::Start(std::move(options));
    EXPECT_OK(process.status());
    return process.ok() ? *std::move(process) : nullptr;
  }
  std::string Log(const std::string& name) const { return folder_ / (name + ".driver.log"); }

  static trainer::v1::GetModelInfoResponse Info(const Service& service) {
    auto stub = trainer::v1::TrainerService::NewStub(rpc::MakeChannel(service.address));
    auto context = rpc::MakeContext(absl::Seconds(10));
    trainer::v1::GetModelInfoResponse response;
    EXPECT_TRUE(stub->GetModelInfo(context.get(), {}, &response).ok());
    return response;
  }
  static bool IsDriven(const Service& service) { return Info(service).has_lease_holder(); }

  // The samples of the run's first step have been made, and wait for their rewards.
  bool AwaitsRewards() {
    return Eventually([&] { return reward_.num_waiting() > 0; }, kPatience);
  }

  const TempFolder folder_;
  std::string config_;
  GatedReward reward_{absl::ZeroDuration()};
};

TEST_F(OneDriverRunTest, ASecondRunIsRefusedAndToldWhoDrivesTheTrainer) {
  const Service trainer = Start("tandem-trainer", "trainer", {});
  const Service rollout = Start("tandem-rollout", "rollout", {});
  reward_.Close();
  auto first = Launch("a", Run("a", trainer, rollout));
  ASSERT_TRUE(AwaitsRewards()) << ReadWhole(Log("a"));

  const ProgramResult second = RunProgram("tandem", Run("b", trainer, rollout));

  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("another driver holds this trainer"),
                    HasSubstr(absl::StrCat("process ", first->pid(), " on ")),
                    HasSubstr("run folder " + Runs() + "/a"), HasSubstr("last heartbeat")));
  EXPECT_EQ(ReadWhole(Runs() + "/b/metrics.jsonl"), "");
  reward_.Open();
  ASSERT_TRUE(first->Wait(absl::Seconds(kPatience)));
  EXPECT_OK(first->ExitStatus()) << ReadWhole(Log("a"));
  EXPECT_EQ(JsonLines(ReadWhole(Runs() + "/a/metrics.jsonl")).size(), 4);  // steps 0 to 3
  EXPECT_EQ(Info(trainer).step(), 3);
  EXPECT_FALSE(IsDriven(trainer));  // it was released
}

TEST_F(OneDriverRunTest, ADriverThatWasStoppedForLongerThanItsLeaseIsFenced) {
  const Service trainer = Start("tandem-trainer", "trainer", {"trainer.driver_lease_s=2"});
  const Service rollout = Start("tandem-rollout", "rollout", {});
  reward_.Close();
  auto stopped = Launch("a", Run("a", trainer, rollout));
  ASSERT_TRUE(AwaitsRewards()) << ReadWhole(Log("a"));
  stopped->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return !IsDriven(trainer); }, kPatience));
  reward_.Open();

  const ProgramResult next =
      RunProgram("tandem", Run("b", trainer, rollout, {"--set", "trainer.total_steps=2"}));
  EXPECT_EQ(next.exit_code, 0) << next.err;
  stopped->Signal(SIGCONT);

  ASSERT_TRUE(stopped->Wait(absl::Seconds(kPatience)));
  EXPECT_THAT(stopped->ExitDescription(), HasSubstr("exited with 1"));
  EXPECT_THAT(ReadWhole(Log("a")),
              AllOf(HasSubstr("lease on the trainer"), HasSubstr("has ended")));
  EXPECT_EQ(Info(trainer).step(), 2);
  EXPECT_THAT(ReadWhole(Runs() + "/a/metrics.jsonl"), Not(HasSubstr("global_step\":1")));
}

TEST_F(OneDriverRunTest, AResumedRunWaitsForItsPredecessorsLeaseAndSaysSo) {
  const Service trainer = Start("tandem-trainer", "trainer", {"trainer.driver_lease_s=3"});
  const Service rollout = Start("tandem-rollout", "rollout", {});
  const std::vector<std::string> args =
      Run("a", trainer, rollout, {"--set", "trainer.save_freq=1"});
  reward_.Close();
  auto killed = Launch("a", args);
  ASSERT_TRUE(AwaitsRewards()) << ReadWhole(Log("a"));
  killed->Kill();
  ASSERT_TRUE(killed->Wait(absl::Seconds(kPatience)));
  const std::string run_id = ReadWhole(Runs() + "/a/run_id");
  reward_.Open();

  std::vector<std::string> resume = args;
  resume.push_back("--resume");
  const ProgramResult resumed = RunProgram("tandem", resume);

  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("an earlier process of this run"),
                                 HasSubstr(absl::StrCat(killed->pid())), HasSubstr("; waiting")));
  EXPECT_EQ(ReadWhole(Runs() + "/a/run_id"), run_id);
  EXPECT_EQ(Info(trainer).step(), 3);
}

TEST_F(OneDriverRunTest, ARunThatForgetsToResumeIsToldSoAndMovesNothing) {
  const Service trainer = Start("tandem-trainer", "trainer", {});
  const Service rollout = Start("tandem-rollout", "rollout", {});
  const std::vector<std::string> judged_here = {"--set", "reward.name=prefix_match",
                                                "--set", "trainer.save_freq=1",
                                                "--set", "trainer.total_steps=2"};
  const ProgramResult ended = RunProgram("tandem", Run("a", trainer, rollout, judged_here));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string metrics = ReadWhole(Runs() + "/a/metrics.jsonl");

  const ProgramResult same = RunProgram("tandem", Run("a", trainer, rollout, judged_here));
  const ProgramResult other = RunProgram("tandem", Run("b", trainer, rollout, judged_here));
  const std::string function = folder_.Write(
      "my_reward.py", "def compute_score(solution_str, **kwargs): return len(solution_str)\n");
  std::vector<std::string> judged_in_python = judged_here;
  judged_in_python.insert(judged_in_python.end(),
                          {"--set", "reward.name=exact_match", "--set", "reward.endpoint=''",
                           "--set", "reward.path=" + function});
  const ProgramResult python = RunProgram("tandem", Run("a", trainer, rollout, judged_in_python));

  EXPECT_EQ(python.exit_code, 1);
  EXPECT_THAT(python.err, HasSubstr("is at step 2, but this run begins with step 1"));
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_THAT(same.err,
              AllOf(HasSubstr("is at step 2, but this run begins with step 1"),
                    HasSubstr("--resume continues from " + Runs() + "/a/checkpoints/step-2"),
                    HasSubstr("--take-over")));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr(Runs() + "/b has no checkpoint; --resume=DIR"));
  EXPECT_EQ(ReadWhole(Runs() + "/a/metrics.jsonl"), metrics);
  EXPECT_FALSE(std::filesystem::exists(Runs() + "/a/previous-1"));
  EXPECT_EQ(Info(trainer).step(), 2);
}

TEST_F(OneDriverRunTest, ASecondTrainerGetsTheRolloutsOfARunThatHasEnded) {
  const Service first = Start("tandem-trainer", "first", {});
  const Service second = Start("tandem-trainer", "second", {});
  const Service rollout = Start("tandem-rollout", "rollout", {});
  const std::vector<std::string> one_step = {"--set", "trainer.total_steps=1"};
  const ProgramResult ended = RunProgram("tandem", Run("a", first, rollout, one_step));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;

  const ProgramResult next = RunProgram("tandem", Run("b", second, rollout, one_step));

  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_EQ(Info(second).step(), 1);
}

TEST_F(OneDriverRunTest, ASecondTrainerGetsARolloutOnlyWhenItIsToldToTakeItOver) {
  const Service first = Start("tandem-trainer", "first", {});
  const Service second = Start("tandem-trainer", "second", {});
  const Service rollout = Start("tandem-rollout", "rollout", {});
  reward_.Close();
  auto owner = Launch("a", Run("a", first, rollout));
  ASSERT_TRUE(AwaitsRewards()) << ReadWhole(Log("a"));
  const std::vector<std::string> judged_here = {"--set", "reward.name=prefix_match", "--set",
                                                "trainer.total_steps=1"};

  const ProgramResult refused = RunProgram("tandem", Run("b", second, rollout, judged_here));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("wants this rollout"), HasSubstr("belongs to run"),
                                 HasSubstr(Runs() + "/a"), HasSubstr("--take-over")));
  EXPECT_EQ(Info(second).step(), 0);

  std::vector<std::string> taking = judged_here;
  taking.push_back("--take-over");
  const ProgramResult taken = RunProgram("tandem", Run("c", second, rollout, taking));
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  EXPECT_EQ(Info(second).step(), 1);
  reward_.Open();

  // It trains on what its own weights have sampled, and is told at its next update.
  ASSERT_TRUE(owner->Wait(absl::Seconds(kPatience)));
  EXPECT_THAT(owner->ExitDescription(), HasSubstr("exited with 1"));
  EXPECT_THAT(ReadWhole(Log("a")), AllOf(HasSubstr("belongs to run"), HasSubstr(Runs() + "/c")));
  EXPECT_EQ(Info(first).step(), 1);
}

}  // namespace
}  // namespace tandem
