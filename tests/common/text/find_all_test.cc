#include "common/text/find_all.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::text {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FindAll, ReturnsPlacesThatDoNotOverlap) {
  EXPECT_THAT(FindAll("a, b, c", ", "), ElementsAre(1, 4));
  EXPECT_THAT(FindAll("aaaaa", "aa"), ElementsAre(0, 2));
  EXPECT_THAT(FindAll("abc", "abc"), ElementsAre(0));
}

TEST(FindAll, OfNothingIsNowhere) {
  EXPECT_THAT(FindAll("abc", ""), IsEmpty());
  EXPECT_THAT(FindAll("", "a"), IsEmpty());
  EXPECT_THAT(FindAll("abc", "abcd"), IsEmpty());
}

}  // namespace
}  // namespace tandem::text
