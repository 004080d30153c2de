#include "common/weights/transport_name.h"

#include <gtest/gtest.h>

namespace tandem::weights {
namespace {

TEST(TransportName, IsTheWordOfTheConfiguration) {
  EXPECT_EQ(TransportName(common::v1::TRANSPORT_BROADCAST), "broadcast");
  EXPECT_EQ(TransportName(common::v1::TRANSPORT_RESHARD), "reshard");
  EXPECT_EQ(TransportName(common::v1::TRANSPORT_DELTA), "delta");
  EXPECT_EQ(TransportName(common::v1::TRANSPORT_STREAM), "stream");
}

TEST(TransportName, TellsWhatIsNoTransport) {
  EXPECT_EQ(TransportName(common::v1::TRANSPORT_UNSPECIFIED), "unspecified");
  EXPECT_EQ(TransportName(static_cast<common::v1::Transport>(77)), "77");
}

}  // namespace
}  // namespace tandem::weights
