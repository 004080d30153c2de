#include "common/io/folder_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "common/io/lock_record.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::NamesIn;
using ::tandem::testing::Slurp;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FolderLockTest : public ::testing::TestWithParam<bool> {
 protected:
  FolderLockTest() {
    options_.use_kernel_lock = GetParam();
    options_.note = [this](const std::string& text) { notes_.push_back(text); };
  }

  // The lock file of a process that did not remove it, as another one finds it.
  void Leave(const LockRecord& record) { folder_.Write(kLockFile, ToText(record)); }

  const TemporaryFolder folder_;
  FolderLock::Options options_;
  std::vector<std::string> notes_;
};

TEST_P(FolderLockTest, RefusesASecondHolderAndNamesTheFirst) {
  ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Acquire(folder_.path(), options_));

  const LockRecord own = OwnLockRecord();
  EXPECT_THAT(
      FolderLock::Acquire(folder_.path(), options_),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(folder_.path()), HasSubstr("process " + std::to_string(getpid())),
                     HasSubstr("host " + own.host), HasSubstr("since 20"),
                     HasSubstr("another run_dir"))));
  EXPECT_OK(lock.Check());
}

TEST_P(FolderLockTest, LeavesNothingAndMayBeTakenAgain) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Acquire(folder_.path(), options_));
    EXPECT_THAT(NamesIn(folder_.path()), ElementsAre(kLockFile));
  }
  EXPECT_THAT(NamesIn(folder_.path()), IsEmpty());
}

TEST_P(FolderLockTest, TakesOverTheLockOfAProcessThatHasEnded) {
  LockRecord dead = OwnLockRecord();
  dead.start_ticks -= 1;  // the pid has come round again
  Leave(dead);

  ASSERT_OK(FolderLock::Acquire(folder_.path(), options_).status());

  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("taking over"), HasSubstr("which has ended"))));
}

TEST_P(FolderLockTest, WatchesTheLockOfAnotherMachineAndTakesItOverWhereItStandsStill) {
  LockRecord other = OwnLockRecord();
  other.boot_id = "another";
  other.host = "node-7";
  Leave(other);
  absl::Duration waited;
  options_.wait = [&waited](absl::Duration duration) { waited += duration; };

  ASSERT_OK(FolderLock::Acquire(folder_.path(), options_).status());

  EXPECT_GE(waited, options_.patience);
  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("node-7"), HasSubstr("watching"))));
}

TEST_P(FolderLockTest, RefusesWhileAnotherMachineRenewsItsLock) {
  LockRecord other = OwnLockRecord();
  other.boot_id = "another";
  other.host = "node-7";
  Leave(other);
  int looks = 0;
  options_.wait = [&](absl::Duration) {
    if (++looks < 3) return;
    const timespec times[2] = {{looks, 0}, {looks, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder_ / kLockFile).c_str(), times, 0), 0);
  };

  EXPECT_THAT(FolderLock::Acquire(folder_.path(), options_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("host node-7")));
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(Slurp(folder_ / kLockFile), ToText(other));
}

TEST_P(FolderLockTest, IsInterruptedWhileItWatches) {
  LockRecord other = OwnLockRecord();
  other.boot_id = "another";
  Leave(other);
  options_.interrupted = [] { return true; };
  EXPECT_THAT(FolderLock::Acquire(folder_.path(), options_),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

TEST_P(FolderLockTest, NoticesThatTheFolderIsGoneOrAnothersNow) {
  ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Acquire(folder_.path(), options_));

  std::filesystem::rename(folder_ / kLockFile, folder_ / "moved");
  EXPECT_THAT(lock.Check(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_.path())));

  folder_.Write(kLockFile, "another's");
  EXPECT_THAT(lock.Check(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
}

TEST_P(FolderLockTest, RemovesNoLockFileOfAnother) {
  {
    ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Acquire(folder_.path(), options_));
    std::filesystem::remove(folder_ / kLockFile);
    folder_.Write(kLockFile, "another's");
  }
  EXPECT_EQ(Slurp(folder_ / kLockFile), "another's");
}

TEST_P(FolderLockTest, IsRenewed) {
  options_.renewal = absl::Milliseconds(1);
  ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Acquire(folder_.path(), options_));
  const timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (folder_ / kLockFile).c_str(), times, 0), 0);
  struct stat info;
  do {  // ends with the test's time limit where it is not renewed
    ASSERT_EQ(::stat((folder_ / kLockFile).c_str(), &info), 0);
  } while (info.st_mtim.tv_sec == 1);
}

INSTANTIATE_TEST_SUITE_P(Locks, FolderLockTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "OfTheKernel" : "OfTheFile"; });

TEST(FolderLock, EndsWithItsProcessThoughAChildGoesOn) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const absl::StatusOr<FolderLock> lock = FolderLock::Acquire(folder.path(), {});
    // A child program that outlives the holder, as the services of a run may for a moment.
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/sleep", "sleep", "60", nullptr);
      ::_exit(1);
    }
    const pid_t message = lock.ok() ? child : -1;
    // exec closes the child's copy of this pipe: the parent reads until then.
    if (::write(ready[1], &message, sizeof(message)) != sizeof(message)) ::_exit(1);
    ::close(ready[1]);
    ::pause();
  }
  ::close(ready[1]);
  pid_t child = -1, rest = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  EXPECT_EQ(::read(ready[0], &rest, sizeof(rest)), 0);  // the child has called exec
  EXPECT_THAT(FolderLock::Acquire(folder.path(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("process " + std::to_string(holder))));

  ASSERT_EQ(::kill(holder, SIGKILL), 0);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);

  EXPECT_OK(FolderLock::Acquire(folder.path(), {}).status());
  EXPECT_EQ(::kill(child, 0), 0);
  ::kill(child, SIGKILL);
}

TEST(FolderLock, RefusesALinkOrAFifoInItsPlace) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / kLockFile).c_str(), 0600), 0);
  EXPECT_THAT(FolderLock::Acquire(folder.path(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found a FIFO")));
  std::filesystem::remove(folder / kLockFile);
  folder.Write("elsewhere", "precious");
  std::filesystem::create_symlink(folder / "elsewhere", folder / kLockFile);
  EXPECT_FALSE(FolderLock::Acquire(folder.path(), {}).ok());
  EXPECT_EQ(Slurp(folder / "elsewhere"), "precious");
}

TEST(FolderLock, IsSeenByOthersWhileItIsHeld) {
  const TemporaryFolder folder;
  EXPECT_FALSE(FolderLock::IsHeld(folder.path()));
  {
    ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Acquire(folder.path(), {}));
    EXPECT_TRUE(FolderLock::IsHeld(folder.path()));
    EXPECT_OK(lock.Check());  // looking takes nothing away
  }
  EXPECT_FALSE(FolderLock::IsHeld(folder.path()));
}

TEST(FolderLock, IsNotHeldByARecordThatADeadProcessLeft) {
  const TemporaryFolder folder;
  folder.Write(kLockFile, ToText(OwnLockRecord()));  // just written, but nobody locks the file
  EXPECT_FALSE(FolderLock::IsHeld(folder.path()));

  LockRecord elsewhere = OwnLockRecord();
  elsewhere.boot_id = "another machine";
  folder.Write(kLockFile, ToText(elsewhere));
  EXPECT_TRUE(FolderLock::IsHeld(folder.path()));  // renewed a moment ago
  std::filesystem::last_write_time(
      folder / kLockFile, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(5));
  EXPECT_FALSE(FolderLock::IsHeld(folder.path()));
}

TEST(LockRecord, IsReadAsItWasWritten) {
  const LockRecord own = OwnLockRecord();
  EXPECT_GT(own.start_ticks, 0);
  EXPECT_TRUE(IsRunning(own));
  ASSERT_OK_AND_ASSIGN(const LockRecord read, ParseLockRecord(ToText(own), "run.lock"));
  EXPECT_EQ(read, own);
  for (const char* text : {"", "{}", "[]", "{\"pid\": -1}", "\xff"}) {
    EXPECT_THAT(ParseLockRecord(text, "run.lock"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("run.lock")));
  }
}

}  // namespace
}  // namespace tandem::io
