#include "services/rollout/sampler/top_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace tandem::rollout {
namespace {

TEST(TopLogprobs, AreThoseOfASortedSoftmax) {
  std::mt19937 random(3);
  std::vector<float> logits(500);
  for (float& logit : logits) logit = static_cast<float>(random() % 64) / 4;  // with equal ones
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit);
  const auto reference = [&](int32_t id) { return logits[id] - std::log(sum); };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });

  for (const int64_t count : {0, 1, 5, 20, 500, 600}) {
    const auto top =
        TopLogprobs(logits.data(), 500, count, {17, static_cast<float>(reference(17))});

    ASSERT_EQ(top.size(), std::min<int64_t>(count, 500));
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].id, order[i]) << i;
      EXPECT_NEAR(top[i].logprob, reference(order[i]), 1e-4) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::rollout
