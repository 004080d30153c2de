#include "common/rpc/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::rpc {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcessTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(::testing::TempDir(), "tandem_child_", getpid(), "_", info->name());
    std::filesystem::create_directories(folder_);
  }
  ~ChildProcessTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<ChildProcess>> Shell(const std::string& script) {
    return ChildProcess::Start({.name = "helper",
                                .argv = {"sh", "-c", script},
                                .environment = {{"FOLDER", folder_}, {"GREETING", "a = b"}},
                                .log_path = folder_ + "/log"});
  }

  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }

  // Whether the process is gone, or about to be: a zombie whose parent has not looked yet counts.
  static bool IsGone(pid_t pid) {
    std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
    std::string text;
    if (!std::getline(stat, text)) return true;
    const size_t name_end = text.rfind(')');
    return name_end == std::string::npos || text.compare(name_end, 3, ") Z") == 0;
  }
  static bool BecomesGone(pid_t pid) {
    const absl::Time deadline = absl::Now() + kTimeout;
    while (!IsGone(pid)) {
      if (absl::Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::string folder_;
};

TEST_F(ChildProcessTest, RunsWithItsEnvironmentAndLog) {
  ASSERT_OK_AND_ASSIGN(auto child, Shell("echo \"$GREETING\"; echo error >&2"));
  ASSERT_TRUE(child->Wait(kTimeout));
  EXPECT_OK(child->ExitStatus());
  EXPECT_EQ(child->ExitDescription(), "exited with 0");
  EXPECT_EQ(Read("log"), "a = b\nerror\n");
}

TEST_F(ChildProcessTest, ReadsTheGivenDescriptorAsStdin) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "given", 5), 5);
  close(ends[1]);
  for (const int fd : {ends[0], -1}) {
    ASSERT_OK_AND_ASSIGN(auto child, ChildProcess::Start({.argv = {"sh", "-c", "cat; echo ."},
                                                          .log_path = folder_ + "/log",
                                                          .stdin_fd = fd}));
    ASSERT_TRUE(child->Wait(kTimeout));
  }
  close(ends[0]);
  EXPECT_EQ(Read("log"), "given.\n.\n");  // without one there is nothing to read
}

TEST_F(ChildProcessTest, WritesIntoTheGivenDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_OK_AND_ASSIGN(auto child,
                       ChildProcess::Start({.argv = {"sh", "-c", "echo out; echo error >&2"},
                                            .log_path = folder_ + "/log",
                                            .stdout_fd = ends[1]}));
  ASSERT_TRUE(child->Wait(kTimeout));
  close(ends[1]);
  char text[16];
  EXPECT_EQ(read(ends[0], text, sizeof(text)), 4);
  close(ends[0]);
  EXPECT_EQ(std::string(text, 4), "out\n");
  EXPECT_EQ(Read("log"), "error\n");
}

TEST_F(ChildProcessTest, InheritsWhatItMay) {
  setenv("KEPT_OF_PARENT", "1", 1);
  setenv("SECRET_OF_PARENT", "2", 1);
  ASSERT_OK_AND_ASSIGN(
      auto child,
      ChildProcess::Start({.argv = {"sh", "-c", "echo $KEPT_OF_PARENT,$SECRET_OF_PARENT,$GIVEN"},
                           .environment = {{"GIVEN", "3"}},
                           .inherits =
                               [](const std::string& name) {
                                 return name != "SECRET_OF_PARENT" && name != "GIVEN";
                               },
                           .log_path = folder_ + "/log"}));
  ASSERT_TRUE(child->Wait(kTimeout));
  EXPECT_EQ(Read("log"), "1,,3\n");
}

TEST_F(ChildProcessTest, SaysHowItEnded) {
  ASSERT_OK_AND_ASSIGN(auto failed, Shell("exit 3"));
  ASSERT_TRUE(failed->Wait(kTimeout));
  EXPECT_THAT(failed->ExitStatus(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "helper exited with 3; its log is " + folder_ + "/log"));
  ASSERT_OK_AND_ASSIGN(auto killed, Shell("sleep 100"));
  EXPECT_EQ(killed->ExitDescription(), "running");
  EXPECT_TRUE(killed->running());
  EXPECT_THAT(killed->ExitStatus(), StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
  killed->Kill();
  ASSERT_TRUE(killed->Wait(kTimeout));
  EXPECT_EQ(killed->ExitDescription(), "killed by SIGKILL");
  killed->Kill();  // harmless
}

TEST_F(ChildProcessTest, AProgramThatCannotRunIsNamed) {
  EXPECT_THAT(ChildProcess::Start({.argv = {"/nowhere/program"}}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/program: No such file")));
  EXPECT_THAT(ChildProcess::Start({.argv = {"no-such-program-in-path"}}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not in PATH")));
  EXPECT_THAT(ChildProcess::Start({}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  const std::string text = folder_ + "/not-a-program";
  std::ofstream(text) << "\x7f"
                         "ELF nonsense";
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
  EXPECT_THAT(ChildProcess::Start({.argv = {text}}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot run " + text)));
  EXPECT_THAT(ChildProcess::Start({.argv = {"true"}, .log_path = folder_ + "/none/log"}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/none/log")));
}

TEST_F(ChildProcessTest, StopInsistsWhereSigtermIsIgnored) {
  ASSERT_OK_AND_ASSIGN(
      auto child, Shell("trap '' TERM; echo ready > $FOLDER/ready; while :; do sleep 1; done"));
  ASSERT_OK(WaitForReadyFile(folder_ + "/ready", *child, kTimeout).status());
  child->Stop(absl::Milliseconds(20));
  EXPECT_EQ(child->ExitDescription(), "killed by SIGKILL");
}

TEST_F(ChildProcessTest, StopLetsAChildEndByItself) {
  ASSERT_OK_AND_ASSIGN(auto child, Shell("trap 'exit 0' TERM; echo ready > $FOLDER/ready; "
                                         "while :; do sleep 0.01; done"));
  ASSERT_OK(WaitForReadyFile(folder_ + "/ready", *child, kTimeout).status());
  child->Stop(kTimeout);
  EXPECT_OK(child->ExitStatus());
}

TEST_F(ChildProcessTest, TheDestructorLeavesNothingOfTheGroup) {
  pid_t grandchild;
  {
    ASSERT_OK_AND_ASSIGN(
        auto child, Shell("sleep 1000 & echo $! > $FOLDER/tmp; mv $FOLDER/tmp $FOLDER/pid; wait"));
    ASSERT_OK_AND_ASSIGN(const std::string pid,
                         WaitForReadyFile(folder_ + "/pid", *child, kTimeout));
    ASSERT_TRUE(absl::SimpleAtoi(pid, &grandchild));
  }
  EXPECT_TRUE(BecomesGone(grandchild));
}

TEST_F(ChildProcessTest, WhatAnEndedChildLeftBehindEndsToo) {
  ASSERT_OK_AND_ASSIGN(auto child, Shell("sleep 1000 & echo $! > $FOLDER/pid; exit 1"));
  ASSERT_TRUE(child->Wait(kTimeout));
  pid_t grandchild;
  ASSERT_TRUE(absl::SimpleAtoi(Read("pid"), &grandchild));
  EXPECT_TRUE(BecomesGone(grandchild));
}

TEST_F(ChildProcessTest, AChildSurvivesTheThreadThatStartedIt) {
  std::unique_ptr<ChildProcess> child;
  std::thread([&] {
    auto started = Shell("read line < $FOLDER/pipe; exit 7");
    ASSERT_OK(started.status());
    child = *std::move(started);
  }).join();
  // The parent-death signal of the ended thread would have come by the time a second child has run.
  ASSERT_OK_AND_ASSIGN(auto other, Shell("true"));
  ASSERT_TRUE(other->Wait(kTimeout));
  ASSERT_TRUE(child->Wait(kTimeout));
  EXPECT_EQ(child->ExitDescription(), "exited with 7");
}

TEST_F(ChildProcessTest, OnExitIsCalledOnce) {
  absl::Notification ended;
  ASSERT_OK_AND_ASSIGN(auto child,
                       ChildProcess::Start({.argv = {"true"}, .on_exit = [&] { ended.Notify(); }}));
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(kTimeout));
}

// The parent is this same test in a process of its own, which TANDEM_TEST_FOLDER tells apart.
TEST_F(ChildProcessTest, AChildDiesWithAParentThatIsKilled) {
  if (const char* parents_folder = std::getenv("TANDEM_TEST_FOLDER"); parents_folder != nullptr) {
    ASSERT_OK_AND_ASSIGN(auto child, ChildProcess::Start({.argv = {"sleep", "1000"}}));
    ASSERT_OK(WriteReadyFile(absl::StrCat(parents_folder, "/pid"), absl::StrCat(child->pid())));
    child->Wait(kTimeout);
    return;
  }
  const std::string folder = "TANDEM_TEST_FOLDER=" + folder_;
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const char* const argv[] = {"parent", "--gtest_filter=*AChildDiesWithAParentThatIsKilled",
                                nullptr};
    const char* const environment[] = {folder.c_str(), "PATH=/usr/bin:/bin", nullptr};
    execve("/proc/self/exe", const_cast<char* const*>(argv), const_cast<char* const*>(environment));
    _exit(127);
  }
  pid_t grandchild = 0;
  const absl::Time deadline = absl::Now() + kTimeout;
  while (!absl::SimpleAtoi(Read("pid"), &grandchild) && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(BecomesGone(grandchild));
}

TEST_F(ChildProcessTest, AReadyFileCarriesTheAddress) {
  ASSERT_OK_AND_ASSIGN(auto child, Shell("sleep 1000"));
  ASSERT_OK(WriteReadyFile(folder_ + "/ready", "127.0.0.1:5000"));
  EXPECT_THAT(WaitForReadyFile(folder_ + "/ready", *child, kTimeout),
              IsOkAndHolds("127.0.0.1:5000"));
  EXPECT_THAT(
      WaitForReadyFile(folder_ + "/other", *child, absl::Milliseconds(20)).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("helper was not ready within")));
}

TEST_F(ChildProcessTest, WaitingForAReadyFileEndsWithTheChild) {
  ASSERT_OK_AND_ASSIGN(auto child, Shell("exit 4"));
  EXPECT_THAT(WaitForReadyFile(folder_ + "/ready", *child, kTimeout).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("before it was ready"), HasSubstr("helper exited with 4"))));
}

TEST(ChildProcess, AChildThatTheKernelKilledForWantOfMemoryIsExplained) {
  const ::tandem::testing::TempFolder folder;
  folder.Write("membership", "0::/pod\n");
  folder.Write("groups/pod/memory.max", "536870912\n");
  folder.Write("groups/pod/memory.events", "oom_kill 0\n");
  auto child = ChildProcess::Start({.name = "rollout 0",
                                    .argv = {"sleep", "1000"},
                                    .control_groups = {folder / "membership", folder / "groups"},
                                    .vmstat = folder / "vmstat"});
  ASSERT_OK(child.status());
  folder.Write("groups/pod/memory.events", "oom_kill 1\n");  // before it kills, as the kernel does
  (*child)->Kill();
  ASSERT_TRUE((*child)->Wait(absl::Seconds(30)));
  EXPECT_THAT((*child)->ExitDescription(),
              ::testing::AllOf(HasSubstr("killed by SIGKILL: "), HasSubstr("512.0 MiB"),
                               HasSubstr("rollout.kv_cache_megabytes")));
}

}  // namespace
}  // namespace tandem::rpc
