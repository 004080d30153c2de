#include "services/trainer/service/allowed_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AllowedPathTest : public ::testing::Test {
 protected:
  AllowedPathTest() {
    std::filesystem::create_directories(run_ + "/checkpoints");
    std::filesystem::create_directories(folder_ / "outside/secret");
    std::filesystem::create_directory_symlink(folder_ / "outside", run_ + "/link");
    std::filesystem::create_directory_symlink(run_, folder_ / "alias");
  }
  absl::StatusOr<std::string> Resolve(const std::string& path) const {
    return ResolveUnder(path, {run_}, "the run's");
  }

  const TempFolder folder_;
  const std::string root_ = std::filesystem::canonical(folder_.path()).string();
  const std::string run_ = root_ + "/run";
};

TEST_F(AllowedPathTest, WhatLiesUnderARootIsResolved) {
  EXPECT_THAT(Resolve(run_ + "/checkpoints/step-1"), IsOkAndHolds(run_ + "/checkpoints/step-1"));
  EXPECT_THAT(Resolve(run_ + "/checkpoints/../model/"), IsOkAndHolds(run_ + "/model"));
  EXPECT_THAT(Resolve(folder_ / "alias/model"), IsOkAndHolds(run_ + "/model"));
  EXPECT_THAT(ResolveUnder(folder_ / "outside/x", {run_, folder_ / "outside"}, ""),
              IsOkAndHolds(root_ + "/outside/x"));
}

TEST_F(AllowedPathTest, NothingLeavesTheRoots) {
  for (const std::string& path :
       {run_, run_ + "/", run_ + "/.", run_ + "/..", run_ + "/../outside/secret",
        run_ + "/checkpoints/../../outside", run_ + "/link/secret", run_ + "/link/new/deep",
        run_ + "-beside/x", std::string("/"), std::string("/etc/passwd"), std::string("relative"),
        std::string("../../../../etc")}) {
    EXPECT_THAT(Resolve(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("path: expected a folder under " + run_),
                                              HasSubstr("found"))))
        << path;
  }
  EXPECT_THAT(Resolve(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing")));
  EXPECT_THAT(Resolve(run_ + "/a" + std::string(1, '\0') + "/../../outside"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("zero byte")));
}

}  // namespace
}  // namespace tandem::trainer
