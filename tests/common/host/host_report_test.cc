#include "common/host/host_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/host/process_memory.h"

namespace tandem::host {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HostReport, SaysWhatThereIs) {
  const diagnostics::v1::HostReport report = DescribeHost();
  EXPECT_THAT(report.hostname(), Not(""));
  EXPECT_THAT(report.machine_id(), Not(""));
  EXPECT_THAT(report.network_id(), HasSubstr(report.machine_id()));
  EXPECT_GT(report.available_bytes(), 0);
  EXPECT_GT(report.total_bytes(), report.available_bytes());
  EXPECT_GT(ResidentBytes(), 0);
  EXPECT_LT(ResidentBytes(), report.total_bytes());
}

}  // namespace
}  // namespace tandem::host
