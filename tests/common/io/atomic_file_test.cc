#include "common/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "common/io/atomic_folder.h"
#include "common/io/read_file.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::NamesIn;
using ::tandem::testing::Slurp;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WriteFileAtomically, ReplacesWhatWasThere) {
  TemporaryFolder folder;
  ASSERT_OK(WriteFileAtomically(folder / "a", "old, and longer"));
  ASSERT_OK(WriteFileAtomically(folder / "a", "new"));
  EXPECT_EQ(Slurp(folder / "a"), "new");
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, IsInvisibleUntilItsCommit) {
  TemporaryFolder folder;
  folder.Write("a", "old");
  ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(folder / "a"));
  ASSERT_OK(file.Append("new "));
  ASSERT_OK(file.Append("text"));
  EXPECT_EQ(Slurp(folder / "a"), "old");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(Slurp(folder / "a"), "new text");
  EXPECT_EQ(file.size_bytes(), 8);
}

TEST(AtomicFile, LeavesNothingWhenItIsDropped) {
  TemporaryFolder folder;
  {
    ASSERT_OK_AND_ASSIGN(AtomicFile first, AtomicFile::Create(folder / "a"));
    ASSERT_OK(first.Append("text"));
    AtomicFile moved = std::move(first);
    ASSERT_OK(moved.Append("more"));
  }
  EXPECT_THAT(NamesIn(folder.path()), IsEmpty());
}

TEST(AtomicFile, RefusesASecondCommit) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(folder / "a"));
  ASSERT_OK(file.Commit());
  EXPECT_THAT(file.Commit(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/a")));
  EXPECT_THAT(file.Append("x"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/a")));
}

TEST(AtomicFile, TwoWritersOfOneNameDoNotMix) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(AtomicFile a, AtomicFile::Create(folder / "x"));
  ASSERT_OK_AND_ASSIGN(AtomicFile b, AtomicFile::Create(folder / "x"));
  ASSERT_OK(a.Append("aaa"));
  ASSERT_OK(b.Append("b"));
  ASSERT_OK(a.Commit());
  ASSERT_OK(b.Commit());
  EXPECT_EQ(Slurp(folder / "x"), "b");
}

TEST(AtomicFile, NamesTheFolderThatIsMissing) {
  TemporaryFolder folder;
  EXPECT_THAT(AtomicFile::Create(folder / "no/a"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder / "no/a")));
}

TEST(AtomicFile, LeavesTheOldFileWhereTheDiskIsFull) {
  TemporaryFolder folder;
  folder.Write("a", "old");
  // The limit on a file's size stands for a full disk; a test process is all that it touches.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1024, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status append, commit;
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder / "a");
    ASSERT_OK(file);
    append = file->Append(std::string(4096, 'x'));
    commit = file->Commit();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(append.ok());
  EXPECT_THAT(append.message(), HasSubstr(folder / "a"));
  EXPECT_THAT(commit, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("failed write")));
  EXPECT_EQ(Slurp(folder / "a"), "old");
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("a"));
}

TEST(ReadFile, GivesTheBytesUpToTheCap) {
  TemporaryFolder folder;
  const std::string bytes("a\0b\n", 4);
  folder.Write("a", bytes);
  EXPECT_THAT(ReadFile(folder / "a", 4), IsOkAndHolds(bytes));
  EXPECT_THAT(ReadFile(folder / "a", 3),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 3 bytes")));
}

TEST(ReadFile, StopsReadingADeviceThatNeverEnds) {
  EXPECT_THAT(ReadFile("/dev/zero", 1 << 20),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/zero")));
}

TEST(ReadFile, RefusesWhatIsNoFile) {
  TemporaryFolder folder;
  EXPECT_THAT(ReadFile(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found a folder")));
  EXPECT_THAT(ReadFile(folder / "no"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no")));
}

TEST(ReadJsonFile, TellsWhereTheTextGoesWrong) {
  TemporaryFolder folder;
  folder.Write("bad.json", "{\n \"a\": nope}");
  EXPECT_THAT(ReadJsonFile(folder / "bad.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2")));
  folder.Write("list.json", "[1]");
  EXPECT_THAT(ReadJsonFile(folder / "list.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found array")));
}

TEST(AtomicFolder, AppearsWholeAtItsCommit) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(AtomicFolder made, AtomicFolder::Create(folder / "deep/er/model/"));
  ASSERT_OK(WriteFileAtomically(made.temporary_path() + "/x", "1"));
  EXPECT_FALSE(std::filesystem::exists(folder / "deep/er/model"));
  ASSERT_OK(made.Commit());
  EXPECT_EQ(Slurp(folder / "deep/er/model/x"), "1");
  EXPECT_THAT(NamesIn(folder / "deep/er"), ElementsAre("model"));
}

TEST(AtomicFolder, LeavesNothingWhenItIsDropped) {
  TemporaryFolder folder;
  {
    ASSERT_OK_AND_ASSIGN(AtomicFolder made, AtomicFolder::Create(folder / "m"));
    ASSERT_OK(WriteFileAtomically(made.temporary_path() + "/x", "1"));
  }
  EXPECT_THAT(NamesIn(folder.path()), IsEmpty());
}

TEST(AtomicFolder, TouchesAFolderWithFilesOnlyWhenToldTo) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m");
  folder.Write("m/old", "1");
  {
    ASSERT_OK_AND_ASSIGN(AtomicFolder refused, AtomicFolder::Create(folder / "m"));
    EXPECT_THAT(refused.Commit(),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(folder / "m")));
  }
  EXPECT_THAT(NamesIn(folder / "m"), ElementsAre("old"));
  {
    ASSERT_OK_AND_ASSIGN(AtomicFolder made, AtomicFolder::Create(folder / "m"));
    ASSERT_OK(WriteFileAtomically(made.temporary_path() + "/new", "2"));
    ASSERT_OK(made.Commit(AtomicFolder::kReplace));
  }
  EXPECT_THAT(NamesIn(folder / "m"), ElementsAre("new"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("m"));
}

}  // namespace
}  // namespace tandem::io
