#include "tools/tandem/dataset/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::dataset {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DataFiles, ListsAFileAFolderAndAPattern) {
  const TempFolder folder;
  const std::string b = folder.Write("data/b.jsonl", "");
  const std::string a = folder.Write("data/inner/a.jsonl.gz", "");
  folder.Write("data/README.md", "");
  folder.Write("data/.hidden.jsonl", "");
  folder.Write("data/.cache/c.jsonl", "");

  EXPECT_THAT(ExpandDataFiles(b), IsOkAndHolds(ElementsAre(b)));
  EXPECT_THAT(ExpandDataFiles(folder / "data"), IsOkAndHolds(ElementsAre(b, a)));
  EXPECT_THAT(ExpandDataFiles(folder / "data/*.jsonl"), IsOkAndHolds(ElementsAre(b)));
  EXPECT_THAT(ExpandDataFiles(folder / "data/*/?.jsonl.gz"), IsOkAndHolds(ElementsAre(a)));
}

TEST(DataFiles, SaysThatNothingIsThere) {
  const TempFolder folder;
  folder.Write("data/README.md", "");
  EXPECT_THAT(ExpandDataFiles(folder / "data"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("expected data files (.jsonl")));
  EXPECT_THAT(ExpandDataFiles(folder / "data/*.jsonl"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no file")));
}

}  // namespace
}  // namespace tandem::dataset
