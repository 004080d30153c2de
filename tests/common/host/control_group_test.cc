#include "common/host/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/support/temp_folder.h"

namespace tandem::host {
namespace {

using ::tandem::testing::TempFolder;

// Groups as the system shows them, in a folder of this test's own.
class ControlGroupTest : public ::testing::Test {
 protected:
  void Limit(const std::string& group, const std::string& text) {
    folder_.Write("groups" + group + "/cpu.max", text + "\n");
  }
  void Join(const std::string& membership) { folder_.Write("membership", membership + "\n"); }

  const TempFolder folder_;
  const ControlGroupPlace place_{folder_ / "membership", folder_ / "groups"};
  const int all_ = static_cast<int>(std::thread::hardware_concurrency());
};

TEST_F(ControlGroupTest, FoldersAreThoseOfTheGroupAndOfAllAboveIt) {
  Join("1:cpu:/of/the/first/version\n0::/pods/one");
  EXPECT_EQ(
      ControlGroups("", place_),
      (std::vector<std::string>{place_.root + "/pods/one", place_.root + "/pods", place_.root}));
  Join("0::/");
  EXPECT_EQ(ControlGroups("", place_), std::vector<std::string>{place_.root});
  std::filesystem::remove(folder_ / "membership");
  EXPECT_EQ(ControlGroups("", place_), std::vector<std::string>{place_.root});
}

TEST_F(ControlGroupTest, AControllerOfTheFirstVersionHasItsOwn) {
  Join("4:cpu,cpuacct:/pods/one\n3:cpuset:/other\n0::/third");
  const std::string root = place_.root + "/cpu";
  EXPECT_EQ(ControlGroups("cpu", place_),
            (std::vector<std::string>{root + "/pods/one", root + "/pods", root}));
  EXPECT_EQ(ControlGroups("memory", place_), std::vector<std::string>{place_.root + "/memory"});
}

TEST_F(ControlGroupTest, WithoutAQuotaAllCoresAreUsable) {
  EXPECT_EQ(UsableCores(place_), all_);
  Join("0::/pods");
  Limit("/pods", "max 100000");
  EXPECT_EQ(UsableCores(place_), all_);
}

TEST_F(ControlGroupTest, AQuotaLimitsThemToWholeCoresAndAtLeastOne) {
  Join("0::/pods");
  Limit("/pods", "190000 100000");
  EXPECT_EQ(UsableCores(place_), 1);
  Limit("/pods", "50000 100000");
  EXPECT_EQ(UsableCores(place_), 1);
  Limit("/pods", "100000000 100000");
  EXPECT_EQ(UsableCores(place_), all_);
}

TEST_F(ControlGroupTest, ThatOfAGroupAboveHoldsToo) {
  Join("0::/pods/one");
  Limit("/pods/one", "max 100000");
  Limit("/pods", "100000 100000");
  EXPECT_EQ(UsableCores(place_), 1);
}

TEST_F(ControlGroupTest, ThatOfTheFirstVersionHoldsToo) {
  folder_.Write("groups/cpu/cpu.cfs_period_us", "100000");
  folder_.Write("groups/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(UsableCores(place_), all_);
  folder_.Write("groups/cpu/cpu.cfs_quota_us", "100000");
  EXPECT_EQ(UsableCores(place_), 1);
  folder_.Write("groups/cpu/cpu.cfs_quota_us", "-1");
  Join("1:cpu:/pods");
  folder_.Write("groups/cpu/pods/cpu.cfs_quota_us", "100000");
  folder_.Write("groups/cpu/pods/cpu.cfs_period_us", "100000");
  EXPECT_EQ(UsableCores(place_), 1);
}

TEST_F(ControlGroupTest, WhatIsNoQuotaIsNone) {
  for (const char* text : {"", "max", "0 100000", "100000 0", "-1 100000", "many 100000", "1"}) {
    Limit("", text);
    EXPECT_EQ(UsableCores(place_), all_) << text;
  }
}

}  // namespace
}  // namespace tandem::host
