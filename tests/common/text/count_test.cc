#include "common/text/count.h"

#include <gtest/gtest.h>

namespace tandem::text {
namespace {

TEST(Count, HasTheNounInTheSingularForOneOnly) {
  EXPECT_EQ(Count(0, "replica"), "0 replicas");
  EXPECT_EQ(Count(1, "replica"), "1 replica");
  EXPECT_EQ(Count(2, "replica"), "2 replicas");
  EXPECT_EQ(Count(1, "process", "processes"), "1 process");
  EXPECT_EQ(Count(12, "process", "processes"), "12 processes");
}

}  // namespace
}  // namespace tandem::text
