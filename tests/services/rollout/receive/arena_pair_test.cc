// Arenas of an engine on a simulated device (tests/simulator), staged there or in host memory.
#include "services/rollout/receive/arena_pair.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/model/transformer.h"
#include "tests/simulator/accelerator.h"
#include "tests/support/staged_weights.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::SimulatedAccelerator;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ArenaPairTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { SimulatedAccelerator::Get().Restart({.seed = 7}); }
  void TearDown() override { EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty()); }

  static at::Device device() { return SimulatedAccelerator::Get().device(0); }
  static bool stages_on_device() { return GetParam(); }

  // Makes random weights live, and returns them.
  std::unique_ptr<model::Arena> Commit(ArenaPair& arenas, int64_t version) {
    auto weights = std::make_unique<model::Arena>(model_.table(), at::kFloat);
    model::RandomInit(model_.spec(), version, *weights);
    const auto staged = arenas.Staged().value();
    staged->arena().CopyFrom(*weights);
    EXPECT_OK(arenas.Load());
    arenas.Flip(version);
    return weights;
  }

  void ExpectLive(const ArenaPair& arenas, const model::Arena& expected) {
    const model::ParameterProvider* const live = arenas.live_parameters();
    ASSERT_NE(live, nullptr);
    for (int i = 0; i < static_cast<int>(model_.table().parameters().size()); ++i) {
      EXPECT_EQ(live->Get(i).device(), device());
      EXPECT_TRUE(at::equal(live->Get(i).cpu(), expected.Get(i))) << i;
    }
  }

  const model::Transformer model_{
      model::ParseModelSpec(testing::TinyModelConfig("Qwen2ForCausalLM"), "tiny").value()};
};

INSTANTIATE_TEST_SUITE_P(Staging, ArenaPairTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "OnTheDevice" : "InHostMemory";
});

TEST_P(ArenaPairTest, ACommitKeepsTheAddressesOfTheForwardPass) {
  ArenaPair arenas(model_.table(), at::kFloat, device(),
                   stages_on_device() ? device() : at::Device(at::kCPU));
  EXPECT_EQ(arenas.live_parameters(), nullptr);
  std::set<const void*> addresses;
  for (int64_t version = 1; version <= 4; ++version) {
    const auto weights = Commit(arenas, version);
    EXPECT_EQ(arenas.live_version(), version);
    ExpectLive(arenas, *weights);
    addresses.insert(arenas.live_parameters()->Get(0).const_data_ptr());
  }
  EXPECT_THAT(addresses, SizeIs(1));
}

TEST_P(ArenaPairTest, WhatIsStagedLeavesTheLiveWeightsAlone) {
  ArenaPair arenas(model_.table(), at::kFloat, device(),
                   stages_on_device() ? device() : at::Device(at::kCPU));
  const auto weights = Commit(arenas, 1);
  ASSERT_OK_AND_ASSIGN(const auto staged, arenas.Staged());
  model::Arena zeros(model_.table(), at::kFloat);
  staged->arena().CopyFrom(zeros);
  ExpectLive(arenas, *weights);
  // What a verification digests and a late replica reads is what the device computes with.
  EXPECT_EQ(arenas.live()->arena().Get(0).device().is_cpu(), !stages_on_device());
  EXPECT_TRUE(at::equal(arenas.live()->arena().Get(0).cpu(), weights->Get(0)));
  arenas.DropStaged();
  ExpectLive(arenas, *weights);
}

TEST_P(ArenaPairTest, WhatIsStagedIsComparedWithTheLiveWeights) {
  ArenaPair arenas(model_.table(), at::kFloat, device(),
                   stages_on_device() ? device() : at::Device(at::kCPU));
  const std::vector<int> first = {0}, both = {0, 1};
  EXPECT_FALSE(arenas.StagedEqualsLive(first));  // nothing is live
  const auto weights = Commit(arenas, 1);
  ASSERT_OK_AND_ASSIGN(const auto staged, arenas.Staged());
  staged->arena().CopyFrom(*weights);
  EXPECT_TRUE(arenas.StagedEqualsLive(both));
  weights->Get(1).add_(1);
  staged->arena().CopyFrom(*weights);
  EXPECT_TRUE(arenas.StagedEqualsLive(first));
  EXPECT_FALSE(arenas.StagedEqualsLive(both));
}

TEST_P(ArenaPairTest, ReleasedWeightsCanBeStagedAgain) {
  ArenaPair arenas(model_.table(), at::kFloat, device(),
                   stages_on_device() ? device() : at::Device(at::kCPU));
  Commit(arenas, 1);
  arenas.Release();
  EXPECT_EQ(arenas.live_version(), -1);
  EXPECT_EQ(arenas.live(), nullptr);
  EXPECT_EQ(arenas.live_parameters(), nullptr);
  const auto weights = Commit(arenas, 2);
  ExpectLive(arenas, *weights);
}

}  // namespace
}  // namespace tandem::rollout
