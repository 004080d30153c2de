#include "tools/tandem/bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::bench {
namespace {

using ::testing::ElementsAre;

TEST(TorchRandint, DrawsWhatTorchDraws) {
  // torch.Generator().manual_seed(7); torch.randint(1, 4096, (2, 9)), of which the first six of
  // each row; then torch.randint(1, 131, (1, 5)) from the same generator.
  TorchRandint wide(7, 4096);
  std::vector<uint32_t> ids = wide.Draw(18);

  EXPECT_THAT(std::vector<uint32_t>(ids.begin(), ids.begin() + 6),
              ElementsAre(2386, 2093, 3437, 1227, 2669, 2203));
  EXPECT_THAT(std::vector<uint32_t>(ids.begin() + 9, ids.begin() + 15),
              ElementsAre(2727, 3014, 812, 864, 1213, 2208));
  TorchRandint narrow(7, 131);
  narrow.Draw(18);
  EXPECT_THAT(narrow.Draw(5), ElementsAre(124, 129, 7, 121, 26));
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({}), 0);
}

}  // namespace
}  // namespace tandem::bench
