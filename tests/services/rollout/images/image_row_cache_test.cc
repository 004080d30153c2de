#include "services/rollout/images/image_row_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tandem::rollout {
namespace {

at::Tensor Rows(int64_t count) { return at::full({count, 4}, static_cast<double>(count)); }

TEST(ImageRowCacheTest, GivesUpWhatWasUsedLongestAgo) {
  ImageRowCache cache(3 * 4 * 4);  // three rows
  cache.BeginStep();
  for (const char* digest : {"a", "b", "c"}) {
    ASSERT_TRUE(cache.HasRoomFor(16));
    cache.Put(digest, Rows(1));
  }
  EXPECT_EQ(cache.num_bytes(), 48);

  cache.BeginStep();
  ASSERT_NE(cache.Use("a"), nullptr);
  ASSERT_TRUE(cache.HasRoomFor(16));
  cache.Put("d", Rows(1));

  EXPECT_FALSE(cache.Contains("b"));
  EXPECT_TRUE(cache.Contains("a"));
  EXPECT_TRUE(cache.Contains("c"));
  EXPECT_EQ(cache.num_bytes(), 48);
}

TEST(ImageRowCacheTest, KeepsWhatTheStepUses) {
  ImageRowCache cache(3 * 4 * 4);
  cache.BeginStep();
  cache.Put("a", Rows(2));
  EXPECT_FALSE(cache.HasRoomFor(32));  // beside the first, which is of this step
  cache.BeginStep();
  EXPECT_TRUE(cache.HasRoomFor(32));
  cache.Use("a");
  EXPECT_FALSE(cache.HasRoomFor(32));
}

TEST(ImageRowCacheTest, AnImageBeyondTheLimitIsAlone) {
  ImageRowCache cache(3 * 4 * 4);
  cache.BeginStep();
  cache.Put("a", Rows(1));
  cache.BeginStep();
  ASSERT_TRUE(cache.HasRoomFor(10 * 16));
  cache.Put("big", Rows(10));
  EXPECT_FALSE(cache.Contains("a"));
  EXPECT_EQ(cache.Use("big")->size(0), 10);
  EXPECT_FALSE(cache.HasRoomFor(16));
  cache.Clear();
  EXPECT_EQ(cache.num_bytes(), 0);
  EXPECT_EQ(cache.Use("big"), nullptr);
}

}  // namespace
}  // namespace tandem::rollout
