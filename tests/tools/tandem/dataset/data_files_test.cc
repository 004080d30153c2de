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

// What datasets.save_to_disk writes for a DatasetDict.
TEST(DataFiles, ListsTheRowsOfASavedDataset) {
  const TempFolder folder;
  folder.Write("saved/dataset_dict.json", R"({"splits": ["train", "test"]})");
  std::string files[2];
  for (const std::string split : {"train", "test"}) {
    folder.Write("saved/" + split + "/dataset_info.json", "{\n  \"features\": {}\n}");
    folder.Write("saved/" + split + "/state.json", "{\n  \"_data_files\": []\n}");
    files[split == "train"] = folder.Write("saved/" + split + "/data-00000-of-00001.arrow", "");
  }

  EXPECT_THAT(ExpandDataFiles(folder / "saved/train"), IsOkAndHolds(ElementsAre(files[1])));
  EXPECT_THAT(ExpandDataFiles(folder / "saved"), IsOkAndHolds(ElementsAre(files[0], files[1])));
  EXPECT_THAT(ExpandDataFiles(folder / "saved/*"), IsOkAndHolds(ElementsAre(files[0], files[1])));
}

TEST(DataFiles, ListsTheFilesOfFoldersThatAPatternMatches) {
  const TempFolder folder;
  folder.Write("shards/README.md", "");
  const std::string a = folder.Write("shards/0/a.jsonl", "");
  const std::string b = folder.Write("shards/1/b.jsonl", "");
  EXPECT_THAT(ExpandDataFiles(folder / "shards/*"), IsOkAndHolds(ElementsAre(a, b)));
  const std::string c = folder.Write("shards/c.jsonl", "");
  EXPECT_THAT(ExpandDataFiles(folder / "shards/*"), IsOkAndHolds(ElementsAre(c)));

  folder.Write("empty/0/README.md", "");
  EXPECT_THAT(ExpandDataFiles(folder / "empty/*"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("empty/0: expected data files")));
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
