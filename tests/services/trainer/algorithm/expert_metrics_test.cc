// The experts' load, from the rows that a pass counts to a step's metrics.
#include "services/trainer/algorithm/expert_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::testing::DoubleNear;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ExpertMetrics, AreThoseOfAllRanksRows) {
  testing::LocalMesh world({.dp_shard = 2});
  world.Run([](const comm::DeviceMesh& mesh) {
    Metrics metrics;
    // 6 and 2 rows of the first expert, 2 and 2 of the second, none of the others.
    const int64_t most = mesh.rank() == 0 ? 6 : 2;
    ASSERT_OK(AddExpertMetrics({{}, {most, 2, 0, 0}, {1, 1}}, mesh, at::kCPU, metrics));
    EXPECT_THAT(
        metrics,
        UnorderedElementsAre(
            Pair("experts/layer_1/largest_load", 8.0 / 3), Pair("experts/layer_1/unused", 0.5),
            Pair("experts/layer_1/smallest_load", 0.0),
            // -(2/3 ln 2/3 + 1/3 ln 1/3) / ln 4
            Pair("experts/layer_1/load_entropy", DoubleNear(0.459147917, 1e-8)),
            Pair("experts/layer_2/largest_load", 1.0), Pair("experts/layer_2/unused", 0.0),
            Pair("experts/layer_2/smallest_load", 1.0),
            Pair("experts/layer_2/load_entropy", DoubleNear(1.0, 1e-12)),
            Pair("experts/layer_1/expert_0", 8.0 / 3), Pair("experts/layer_1/expert_1", 4.0 / 3),
            Pair("experts/layer_1/expert_2", 0.0), Pair("experts/layer_1/expert_3", 0.0),
            Pair("experts/layer_2/expert_0", 1.0), Pair("experts/layer_2/expert_1", 1.0),
            Pair("experts/largest_load", 8.0 / 3)));
  });
}

TEST(ExpertMetrics, OfSingleExpertsAreOfModelsWithFew) {
  testing::LocalMesh world({});
  world.Run([](const comm::DeviceMesh& mesh) {
    for (const size_t layers : {2, 3}) {
      Metrics metrics;
      const std::vector<std::vector<int64_t>> rows(layers, std::vector<int64_t>(128, 1));
      ASSERT_OK(AddExpertMetrics(rows, mesh, at::kCPU, metrics));
      EXPECT_EQ(metrics.count("experts/layer_1/expert_127"), layers == 2 ? 1u : 0u);
      EXPECT_EQ(metrics.count("experts/layer_1/load_entropy"), 1u);
    }
  });
}

TEST(ExpertMetrics, CountTensorParallelRanksOnceAndEveryPartOfASequence) {
  testing::LocalMesh world({.dp_shard = 2, .tp = 2, .sequence = 2});
  world.Run([](const comm::DeviceMesh& mesh) {
    Metrics metrics;
    const int64_t of_second = mesh.sequence().rank() == 0 ? 0 : 4;
    ASSERT_OK(AddExpertMetrics({{2, of_second}}, mesh, at::kCPU, metrics));
    EXPECT_EQ(metrics["experts/layer_0/largest_load"], 1.0);
  });
}

TEST(ExpertMetrics, TellTheLoadOfTheRankWhoseExpertsComputeTheMost) {
  testing::LocalMesh world({.dp_shard = 2, .ep = 2});
  world.Run([](const comm::DeviceMesh& mesh) {
    Metrics metrics;
    // Each of four ranks has 3 + 4 rows for the first halves of the experts, 1 + 2 for the others.
    ASSERT_OK(AddExpertMetrics({{}, {1, 2, 0, 1}, {4, 2}}, mesh, at::kCPU, metrics));
    EXPECT_EQ(metrics["experts/largest_rank_load"], 1.4);
  });
}

TEST(ExpertMetrics, OfADenseModelAreNone) {
  testing::LocalMesh world({});
  world.Run([](const comm::DeviceMesh& mesh) {
    Metrics metrics;
    ASSERT_OK(AddExpertMetrics({{}, {}}, mesh, at::kCPU, metrics));
    ASSERT_OK(AddExpertMetrics({{0, 0}}, mesh, at::kCPU, metrics));
    EXPECT_THAT(metrics, IsEmpty());
  });
}

TEST(ExpertMetrics, AModelCountsTheRowsOfItsTrainingPasses) {
  model::ModelSpec spec = SmallSpec();
  spec.layers.back().experts = {
      .num_experts = 6, .intermediate_size = 8, .routing = {.top_k = 2, .normalize = true}};
  testing::LocalMesh world({});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, 5);
    const PackedBatch batch = Pack(RandomSequences(1, 13, spec.vocab_size, 3));
    ASSERT_OK(model->Forward(batch).status());
    const auto before = model->TakeExpertRows();
    ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
    const auto rows = model->TakeExpertRows();
    ASSERT_EQ(rows.size(), spec.layers.size());
    EXPECT_THAT(rows.front(), IsEmpty());
    ASSERT_EQ(rows.back().size(), 6U);
    EXPECT_EQ(std::accumulate(rows.back().begin(), rows.back().end(), int64_t{0}),
              2 * batch.num_tokens());
    // Scoring does not count, and each row is taken once.
    EXPECT_EQ(before.back(), std::vector<int64_t>(6, 0));
    EXPECT_EQ(model->TakeExpertRows(), before);
  });
}

}  // namespace
}  // namespace tandem::trainer
