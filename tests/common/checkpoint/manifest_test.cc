#include "common/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Manifest, ListsWhatDiffersBetweenModels) {
  const TensorMismatch mismatch = CompareTensors({{"a", {2}}, {"b", {2, 3}}, {"c", {1}}},
                                                 {{"a", {2}}, {"b", {3, 3}}, {"d", {1}}});

  EXPECT_THAT(mismatch.missing, ::testing::ElementsAre("c"));
  EXPECT_THAT(mismatch.unexpected, ::testing::ElementsAre("d"));
  EXPECT_THAT(mismatch.ToString(),
              AllOf(HasSubstr("1 missing: c"), HasSubstr("1 unexpected: d"),
                    HasSubstr("b is float32[3, 3] where float32[2, 3] was expected")));
  EXPECT_TRUE(CompareTensors({{"a", {2}}}, {{"a", {2}}}).empty());
}

}  // namespace
}  // namespace tandem::checkpoint
