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

TEST(ReadInput, StopsReadingADeviceThatNeverEnds) {
  EXPECT_THAT(ReadInput("/dev/zero", 1 << 20),
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

TEST(AtomicFolder, LeavesAFolderWithFilesAlone) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m");
  folder.Write("m/old", "1");
  EXPECT_THAT(AtomicFolder::Create(folder / "m"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(folder / "m")));
  EXPECT_THAT(NamesIn(folder / "m"), ElementsAre("old"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("m"));
}

TEST(AtomicFolder, LeavesAFolderAloneThatGotFilesWhileTheNewOneWasWritten) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m");
  for (const FolderKind* replaces : {static_cast<const FolderKind*>(nullptr), &kModelFolder}) {
    std::filesystem::remove(folder / "m/old");
    ASSERT_OK_AND_ASSIGN(AtomicFolder made, AtomicFolder::Create(folder / "m", replaces));
    ASSERT_OK(WriteFileAtomically(made.temporary_path() + "/new", "2"));
    folder.Write("m/old", "1");
    EXPECT_FALSE(made.Commit().ok());
    EXPECT_THAT(NamesIn(folder / "m"), ElementsAre("old"));
  }
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("m"));
}

TEST(AtomicFolder, ReplacesAFolderOfItsKind) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m");
  folder.Write("m/config.json", "{}");
  folder.Write("m/model.safetensors", "1");
  {
    ASSERT_OK_AND_ASSIGN(AtomicFolder made, AtomicFolder::Create(folder / "m/", &kModelFolder));
    ASSERT_OK(WriteFileAtomically(made.temporary_path() + "/new", "2"));
    ASSERT_OK(made.Commit());
  }
  EXPECT_THAT(NamesIn(folder / "m"), ElementsAre("new"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("m"));
}

TEST(AtomicFolder, ReplacesNoFolderOfAnotherKindNoFileAndNoLink) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "rollouts");
  folder.Write("rollouts/1.jsonl", "{}");
  // A folder of settings, not of a model: it has no weights.
  std::filesystem::create_directory(folder / "settings");
  folder.Write("settings/config.json", "{}");
  folder.Write("file", "1");
  std::filesystem::create_symlink(folder / "rollouts", folder / "link");
  for (const char* name : {"rollouts", "settings", "file", "link"}) {
    EXPECT_THAT(AtomicFolder::Create(folder / name, &kModelFolder),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(folder / name)));
  }
  EXPECT_THAT(NamesIn(folder / "rollouts"), ElementsAre("1.jsonl"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("file", "link", "rollouts", "settings"));
}

}  // namespace
}  // namespace tandem::io
