#include "tools/tandem/driver/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::ReadWhole;
using ::tandem::testing::TempFolder;

TEST(Crc32c, IsTheStandards) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);            // the check value of the CRC catalogue
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(EventFile, WritesWhatTensorBoardItselfWould) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(EventFile file, EventFile::Create(folder / "tensorboard"));
  ASSERT_OK(file.Append(absl::UnixEpoch() + absl::Seconds(1.5), 7,
                        {{"actor/loss", 0.25},
                         {"perf/throughput", 1000},
                         {"actor/nothing", std::numeric_limits<double>::quiet_NaN()}}));
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "tensorboard")) {
    EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0);
    bytes = ReadWhole(entry.path().string());
  }
  // The record that tensorboard's RecordWriter makes of the same event.
  const std::string expected = absl::HexStringToBytes(
      "3800000000000000a3797d5709000000000000f83f10072a2b0a110a0a6163746f722f6c6f7373150000803e0a16"
      "0a0f706572662f7468726f7567687075741500007a449fc60277");
  ASSERT_GT(bytes.size(), expected.size());
  EXPECT_EQ(bytes.substr(bytes.size() - expected.size()), expected);
  EXPECT_NE(bytes.find("brain.Event:2"), std::string::npos);
}

TEST(EventFile, TwoOfOneFolderDoNotMeet) {
  const TempFolder folder;
  ASSERT_OK(EventFile::Create(folder.path()).status());
  ASSERT_OK(EventFile::Create(folder.path()).status());
}

}  // namespace
}  // namespace tandem::driver
