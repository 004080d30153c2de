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

TEST(ImageRowCacheTest, PromisedRowsCountAsHeld) {
  ImageRowCache cache(3 * 16);
  cache.BeginStep();
  EXPECT_TRUE(cache.HasRoomFor(16, /*promised=*/32));
  EXPECT_FALSE(cache.HasRoomFor(32, /*promised=*/32));
  EXPECT_TRUE(cache.HasRoomFor(64));  // alone
  EXPECT_FALSE(cache.HasRoomFor(64, /*promised=*/16));
}

TEST(ImageRowCacheTest, AHitIsAQueryOfRowsThatAnEarlierOneRead) {
  ImageRowCache cache(2 * 16);
  cache.BeginStep();
  cache.Put("a", Rows(1));
  cache.Use("a", /*is_new_run=*/true);
  cache.Use("a");  // goes on
  EXPECT_EQ(cache.num_queries(), 1);
  EXPECT_EQ(cache.num_hits(), 0);
  cache.Use("a", /*is_new_run=*/true);
  EXPECT_EQ(cache.num_queries(), 2);
  EXPECT_EQ(cache.num_hits(), 1);

  cache.BeginStep();
  cache.Put("b", Rows(1));
  cache.Put("c", Rows(1));
  EXPECT_EQ(cache.num_evicted(), 1);
  cache.Clear();
  EXPECT_EQ(cache.num_evicted(), 1);
}

}  // namespace
}  // namespace tandem::rollout
