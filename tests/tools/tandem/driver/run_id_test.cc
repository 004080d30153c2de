#include "tools/tandem/driver/run_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/status/status_macros.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

absl::StatusOr<std::string> TakeRunId(const std::string& run_dir, bool resume) {
  ASSIGN_OR_RETURN(std::string id, ChooseRunId(run_dir, resume));
  RETURN_IF_ERROR(WriteRunId(run_dir, id));
  return id;
}

TEST(RunId, IsTheSameForWhoeverContinuesTheRun) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(const std::string begun, TakeRunId(folder.path(), /*resume=*/false));

  ASSERT_OK_AND_ASSIGN(const std::string resumed, TakeRunId(folder.path(), /*resume=*/true));

  EXPECT_EQ(begun.size(), 36);
  EXPECT_EQ(resumed, begun);
}

TEST(RunId, IsAnotherForARunThatBeginsInTheSameFolder) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(const std::string first, TakeRunId(folder.path(), /*resume=*/false));
  ASSERT_OK_AND_ASSIGN(const std::string second, TakeRunId(folder.path(), /*resume=*/false));
  EXPECT_NE(first, second);
  ASSERT_OK_AND_ASSIGN(const std::string resumed, TakeRunId(folder.path(), /*resume=*/true));
  EXPECT_EQ(resumed, second);
}

TEST(RunId, IsDrawnForARunThatHasNone) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(const std::string drawn, TakeRunId(folder.path(), /*resume=*/true));
  ASSERT_OK_AND_ASSIGN(const std::string again, TakeRunId(folder.path(), /*resume=*/true));
  EXPECT_EQ(again, drawn);
}

TEST(RunId, RefusesAFileThatHoldsNone) {
  const TempFolder folder;
  folder.Write("run_id", "someone\n");
  EXPECT_THAT(TakeRunId(folder.path(), /*resume=*/true),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("someone")));
}

}  // namespace
}  // namespace tandem::driver
