#include "services/rollout/requests/rollout_metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tandem::rollout {
namespace {

// The metrics without labels, by name.
std::map<std::string, double> ValuesOf(const EngineInfo& info) {
  const RolloutMetrics metrics([&info] { return info; });
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    if (family.metric.size() != 1 || !family.metric[0].label.empty()) continue;
    const bool is_counter = family.type == prometheus::MetricType::Counter;
    values[family.name] =
        is_counter ? family.metric[0].counter.value : family.metric[0].gauge.value;
  }
  return values;
}

TEST(RolloutMetricsTest, HasWhatAnEngineDidWithImages) {
  EngineInfo info;
  info.images = {
      .encoder = {.num_images = 2,
                  .num_patches = 512,
                  .seconds = 0.25,
                  .num_row_queries = 7,
                  .num_row_hits = 5,
                  .num_rows_evicted = 1,
                  .num_waiting = 4,
                  .row_bytes = 1000},
      .pixels = {
          .num_hits = 10, .num_decoded = 3, .num_evicted = 6, .num_waiting = 8, .num_bytes = 2000}};
  const std::map<std::string, double> expected = {
      {"tandem_images_encoded_total", 2},
      {"tandem_image_patches_encoded_total", 512},
      {"tandem_image_encode_seconds_total", 0.25},
      {"tandem_num_images_waiting", 4},
      {"tandem_num_images_decoding", 8},
      {"tandem_encoder_cache_queries_total", 7},
      {"tandem_encoder_cache_hits_total", 5},
      {"tandem_encoder_cache_evictions_total", 1},
      {"tandem_encoder_cache_bytes", 1000},
      {"tandem_mm_cache_queries_total", 13},
      {"tandem_mm_cache_hits_total", 10},
      {"tandem_mm_cache_evictions_total", 6},
      {"tandem_mm_cache_bytes", 2000},
  };
  const std::map<std::string, double> found = ValuesOf(info);
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name), value) << name;
  }
  // A model of text has none of them.
  const std::map<std::string, double> of_text = ValuesOf(EngineInfo());
  EXPECT_EQ(of_text.size() + expected.size(), found.size());
}

}  // namespace
}  // namespace tandem::rollout
