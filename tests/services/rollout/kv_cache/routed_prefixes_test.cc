#include "services/rollout/kv_cache/routed_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::rollout {
namespace {

using ::testing::ElementsAre;
using ::testing::Pointee;

TEST(RoutedPrefixes, KeepsTheExpertsOfABlock) {
  RoutedPrefixes prefixes(2);
  prefixes.Put({1, 1}, {3, 5});
  prefixes.Put({1, 1}, {4, 6});
  EXPECT_THAT(prefixes.Find({1, 1}), Pointee(ElementsAre(3, 5)));
  EXPECT_EQ(prefixes.Find({1, 2}), nullptr);
}

TEST(RoutedPrefixes, ForgetsTheLeastRecentlyUsedBlock) {
  RoutedPrefixes prefixes(2);
  prefixes.Put({1, 0}, {1});
  prefixes.Put({2, 0}, {2});
  EXPECT_NE(prefixes.Find({1, 0}), nullptr);

  prefixes.Put({3, 0}, {3});

  EXPECT_TRUE(prefixes.Contains({1, 0}));
  EXPECT_FALSE(prefixes.Contains({2, 0}));
  EXPECT_TRUE(prefixes.Contains({3, 0}));
  EXPECT_EQ(prefixes.num_blocks(), 2);
}

TEST(RoutedPrefixes, WithoutBlocksKeepsNothing) {
  RoutedPrefixes prefixes(0);
  prefixes.Put({1, 0}, {1});
  EXPECT_EQ(prefixes.num_blocks(), 0);
}

}  // namespace
}  // namespace tandem::rollout
