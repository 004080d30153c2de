#include "services/rollout/runner/forward_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "services/rollout/engine/engine.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

TEST(ForwardPass, FewGraphsServeEveryBatch) {
  std::set<int64_t> sizes;
  for (int64_t n = 1; n <= kMostGraphRows; ++n) {
    const int64_t rows = GraphRows(n);
    EXPECT_GE(rows, n);
    EXPECT_LE(rows, n + n / 4);
    EXPECT_LE(rows, kMostGraphRows);
    sizes.insert(rows);
  }
  EXPECT_LE(sizes.size(), 32u);
  EXPECT_EQ(GraphRows(kMostGraphRows + 1), 0);
}

TEST(ForwardPass, AGpuThatIsNotThereIsNamed) {
  const model::Transformer model(SmallSpec());
  const auto engine =
      Engine::Create({.device = at::Device(at::kCUDA, 100)}, model, /*tokenizer=*/nullptr);
  EXPECT_THAT(engine.status().message(), ::testing::HasSubstr("rollout.device: cuda:100"));
}

}  // namespace
}  // namespace tandem::rollout
