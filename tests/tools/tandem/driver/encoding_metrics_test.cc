#include "tools/tandem/driver/encoding_metrics.h"

#include <gtest/gtest.h>

namespace tandem::driver {
namespace {

rollout::v1::GetServerInfoResponse Info(const std::string& id, int64_t images, double seconds) {
  rollout::v1::GetServerInfoResponse info;
  info.set_instance_id(id);
  info.set_num_encoded_images(images);
  info.set_num_encoded_patches(4 * images);
  info.set_image_encode_seconds(seconds);
  return info;
}

TEST(EncodingMetrics, CountsWhatEachProcessEncodedSinceTheLastStep) {
  EncodingMetrics encoding;
  encoding.Begin({Info("a", 100, 7), Info("b", 10, 1)});
  Metrics metrics;
  // c has restarted: it is another process.
  encoding.Add({Info("a", 103, 7.5), Info("c", 2, 0.25)}, metrics);
  EXPECT_EQ(metrics["rollout/encoded_images"], 5);
  EXPECT_EQ(metrics["rollout/encoded_image_patches"], 20);
  EXPECT_EQ(metrics["rollout/encode_images_s"], 0.75);
  // b did not answer last time: nothing of it is lost.
  encoding.Add({Info("a", 103, 7.5), Info("b", 14, 1.5), Info("c", 2, 0.25)}, metrics);
  EXPECT_EQ(metrics["rollout/encoded_images"], 4);
  EXPECT_EQ(metrics["rollout/encode_images_s"], 0.5);
}

}  // namespace
}  // namespace tandem::driver
