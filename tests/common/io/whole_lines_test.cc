#include "common/io/whole_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::io {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Lines(const std::string& path, int64_t offset = 0, size_t most = 1000) {
  std::vector<std::string> lines;
  EXPECT_OK(ForEachWholeLine(path, offset, [&](absl::string_view line) {
    lines.emplace_back(line);
    return lines.size() < most;
  }));
  return lines;
}

TEST(WholeLines, LeaveOutALineThatIsBeingWritten) {
  const TempFolder folder;
  const std::string path = folder.Write("a.jsonl", "one\n\nthree\nfo");
  EXPECT_THAT(Lines(path), ElementsAre("one", "", "three"));
  EXPECT_THAT(Lines(path, 4), ElementsAre("", "three"));
  EXPECT_THAT(Lines(path, 0, 1), ElementsAre("one"));
  EXPECT_THAT(Lines(path, 1 << 20), ElementsAre());
  EXPECT_THAT(Lines(folder.Write("empty", "")), ElementsAre());
}

TEST(WholeLines, MayBeLongerThanOneRead) {
  const TempFolder folder;
  const std::string line(700000, 'x');
  EXPECT_THAT(Lines(folder.Write("a", line + "\nshort\n" + line + "\n")),
              ElementsAre(line, "short", line));
}

TEST(WholeLines, ALineWithoutEndIsRefusedWithItsPlace) {
  const TempFolder folder;
  const std::string path = folder.Write("a", "one\n");
  std::filesystem::resize_file(path, uint64_t{3} << 30);  // sparse
  int count = 0;
  EXPECT_THAT(ForEachWholeLine(path, 0,
                               [&count](absl::string_view) {
                                 ++count;
                                 return true;
                               }),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(path + ": byte 4: expected a line of at most"))));
  EXPECT_EQ(count, 1);
}

TEST(WholeLines, DoNotWaitForTheWriterOfAFifo) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(ForEachWholeLine(folder / "fifo", 0, [](absl::string_view) { return true; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regular file")));
}

}  // namespace
}  // namespace tandem::io
