#include "tools/tandem/commands/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace tandem::commands {
namespace {

TEST(PlotPoints, DrawsARisingLineFromBottomLeftToTopRight) {
  const std::string plot = PlotPoints({{1, 0.0}, {2, 0.5}, {3, 1.0}}, 21, 5);

  const std::vector<std::string> lines = absl::StrSplit(plot, '\n');
  EXPECT_EQ(lines[0].find('*'), 10 + 20);
  EXPECT_EQ(lines[2].find('*'), 10 + 10);
  EXPECT_EQ(lines[4].find('*'), 10 + 0);
}

TEST(PlotPoints, DrawsAFlatLineAndNothingForNoPoints) {
  EXPECT_EQ(PlotPoints({}, 20, 5), "");
  EXPECT_THAT(PlotPoints({{1, 0.5}, {2, 0.5}}, 20, 5), ::testing::HasSubstr("*"));
}

}  // namespace
}  // namespace tandem::commands
