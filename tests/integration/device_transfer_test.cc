// The benchmark of a device's transport, with the CPU as the device.
#include "tests/support/device_transfer.h"

#include <gmock/gmock.h>

namespace tandem {
namespace {

using ::tandem::testing::ExpectTransfer;
using ::testing::HasSubstr;

TEST(DeviceTransfer, MovesAModelBetweenProcessesOfTheCpu) {
  ExpectTransfer("cpu", "shared_memory", "bfloat16");
  ExpectTransfer("cpu", "gloo", "float32");
}

TEST(DeviceTransfer, AnotherTransportIsMisuse) {
  const testing::TempFolder folder;
  const auto result =
      testing::RunProgram("tandem", {"bench", "sync", "--model", testing::WriteTinyModel(folder),
                                     "--device", "cpu", "--transport", "reshard"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--device"));
}

}  // namespace
}  // namespace tandem
