#include "common/model/images/pixel_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/images/image_digest.h"
#include "common/io/model_config.h"
#include "common/io/read_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vision_golden.h"

namespace tandem::model {
namespace {

class PixelCacheTest : public ::testing::Test {
 protected:
  void Start(int64_t max_bytes) {
    const std::string folder = testing::VisionGolden("qwen2-vl");
    ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder));
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config.json, config.path));
    ASSERT_OK_AND_ASSIGN(ImagePreparer preparer, ImagePreparer::Load(folder, *spec.vision));
    cache_ = std::make_unique<PixelCache>(std::move(preparer), max_bytes);
    for (const char* name : {"a.png", "b.png", "c.png"}) {
      ASSERT_OK_AND_ASSIGN(files_.emplace_back(), io::ReadFile(folder + "/" + name));
    }
  }

  std::shared_ptr<const PreparedImage> Get(size_t i) {
    const auto image = cache_->Get(images::ImageDigest(files_[i]), files_[i], "image");
    EXPECT_OK(image.status());
    return image.value_or(nullptr);
  }

  std::unique_ptr<PixelCache> cache_;
  std::vector<std::string> files_;
};

TEST_F(PixelCacheTest, AnImageIsPreparedOnce) {
  Start(PixelCache::kDefaultBytes);
  const auto first = Get(0);
  EXPECT_EQ(Get(0), first);
  EXPECT_NE(Get(1), first);
  EXPECT_EQ(cache_->stats().num_bytes,
            static_cast<int64_t>((Get(0)->pixel_values.size() + Get(1)->pixel_values.size()) * 4));
  EXPECT_EQ(cache_->stats().num_decoded, 2);
  EXPECT_EQ(cache_->stats().num_hits, 3);
  EXPECT_EQ(cache_->stats().num_evicted, 0);
  EXPECT_EQ(cache_->stats().num_waiting, 0);
}

TEST_F(PixelCacheTest, GivesUpTheLeastRecentlyUsed) {
  Start(PixelCache::kDefaultBytes);
  const auto bytes = [this](size_t i) {
    return static_cast<int64_t>(Get(i)->pixel_values.size() * 4);
  };
  const int64_t most = bytes(0) + bytes(1);
  Start(most);
  files_.resize(3);
  const auto a = Get(0);
  const auto b = Get(1);
  EXPECT_EQ(Get(0), a);
  const auto c = Get(2);  // takes the place of b
  EXPECT_EQ(Get(0), a);
  EXPECT_EQ(Get(2), c);
  EXPECT_NE(Get(1), b);
  EXPECT_EQ(Get(1)->pixel_values, b->pixel_values);
  EXPECT_LE(cache_->stats().num_bytes, most);
  EXPECT_GE(cache_->stats().num_evicted, 2);
}

TEST_F(PixelCacheTest, AnImageBeyondTheLimitIsNotKept) {
  Start(100);
  EXPECT_NE(Get(0), Get(0));
  EXPECT_EQ(cache_->stats().num_bytes, 0);
  EXPECT_EQ(cache_->stats().num_decoded, 2);
}

}  // namespace
}  // namespace tandem::model
