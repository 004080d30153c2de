#include "common/version/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace tandem::version {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BuildVersion, IsTheProjectsWithTheCommitIfKnown) {
  const std::string version(BuildVersion());
  EXPECT_EQ(version.substr(0, version.find('+')), TANDEM_PROJECT_VERSION);
  const std::string commit = version.substr(version.find_first_of('+') + 1);
  if (commit != version) {
    EXPECT_TRUE(std::regex_match(commit, std::regex("g[0-9a-f]{7,40}"))) << version;
  }
}

TEST(IsSameBuild, ComparesNumbersAndKnownCommits) {
  EXPECT_TRUE(IsSameBuild("0.1.0", "0.1.0"));
  EXPECT_TRUE(IsSameBuild("0.1.0+g1a", "0.1.0+g1a"));
  EXPECT_FALSE(IsSameBuild("0.1.0", "0.2.0"));
  EXPECT_FALSE(IsSameBuild("0.1.0+g1a", "0.1.0+g2b"));
  EXPECT_FALSE(IsSameBuild("0.1.0+g1a", "0.2.0+g1a"));
}

TEST(IsSameBuild, AnUnknownCommitMayBeAny) {
  EXPECT_TRUE(IsSameBuild("0.1.0", "0.1.0+g1a"));
  EXPECT_TRUE(IsSameBuild("0.1.0+g1a", "0.1.0"));
}

TEST(DescribeOtherBuild, NamesBothVersions) {
  EXPECT_EQ(DescribeOtherBuild("the trainer", BuildVersion()), "");
  EXPECT_EQ(DescribeOtherBuild("the trainer", ""), "");
  EXPECT_THAT(DescribeOtherBuild("the trainer", "0.0.1"),
              AllOf(HasSubstr("the trainer is version 0.0.1"),
                    HasSubstr(std::string(BuildVersion())), HasSubstr("deploy one version")));
}

}  // namespace
}  // namespace tandem::version
