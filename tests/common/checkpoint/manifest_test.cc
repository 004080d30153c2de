#include "common/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/shard_index.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::checkpoint {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Manifest, RefusesAnotherFormat) {
  const TempFolder folder;
  folder.Write("manifest.json", R"({"format": "tandem-sharded-checkpoint", "format_version": 1})");

  EXPECT_THAT(ReadManifest(folder.path()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected tandem-checkpoint of version 2")));
}

// An index whose digests are right and whose claims nobody can have written.
std::string Index(const std::string& run, const std::string& sizes) {
  return absl::StrCat(R"({"data_file": "a.bin", )", sizes,
                      R"(, "runs": [{"model": "policy", "kind": "master", "tensor": "t", )", run,
                      "}]}");
}

TEST(ShardIndex, RefusesClaimsThatOverflow) {
  constexpr char kSizes[] = R"("size_bytes": 4, "block_bytes": 4, "block_digests": ["x"])";
  constexpr char kPlace[] = R"("box": [0, 1, 0, 1], "begin": 0, "count": 1, "offset": 0)";
  EXPECT_OK(ParseIndex(Index(absl::StrCat(R"("shape": [1], )", kPlace), kSizes), "i.json"));
  for (
      const char* run : {
          R"("shape": [1099511627776, 1099511627776], "box": [0, 1, 0, 1], "begin": 0, "count": 1, "offset": 0)",
          R"("shape": [0, 4611686018427387904, 4], "box": [0, 0, 0, 0], "begin": 0, "count": 0, "offset": 0)",
          R"("shape": [-1], "box": [0, 0, 0, 1], "begin": 0, "count": 0, "offset": 0)",
          R"("shape": [1], "box": [0, 1, 0, 1], "begin": 9223372036854775807, "count": 1, "offset": 0)",
          R"("shape": [1], "box": [0, 1, 0, 1], "begin": 0, "count": 1, "offset": 9223372036854775807)",
          R"("shape": [1], "box": [0, 1, 0, 1], "begin": 0, "count": 1, "offset": 1)",
      }) {
    EXPECT_THAT(ParseIndex(Index(run, kSizes), "i.json").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("i.json: runs[0]")));
  }
  EXPECT_THAT(ParseIndex(Index(absl::StrCat(R"("shape": [1], )", kPlace),
                               R"("size_bytes": 9223372036854775807, "block_bytes": 2,
                                  "block_digests": [])"),
                         "i.json")
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block_digests")));
}

TEST(Manifest, ListsWhatDiffersBetweenModels) {
  const TensorMismatch mismatch = CompareTensors({{"a", {2}}, {"b", {2, 3}}, {"c", {1}}},
                                                 {{"a", {2}}, {"b", {3, 3}}, {"d", {1}}});

  EXPECT_THAT(mismatch.missing, ::testing::ElementsAre("c"));
  EXPECT_THAT(mismatch.unexpected, ::testing::ElementsAre("d"));
  EXPECT_THAT(mismatch.ToString(),
              AllOf(HasSubstr("1 missing: c"), HasSubstr("1 unexpected: d"),
                    HasSubstr("b: expected float32[2, 3], found float32[3, 3]")));
  EXPECT_TRUE(CompareTensors({{"a", {2}}}, {{"a", {2}}}).empty());
}

}  // namespace
}  // namespace tandem::checkpoint
