// What the ranks of a replica are sent, against what they expect: parts of matrices, or whole experts.
#include <gtest/gtest.h>

#include <cstdint>

#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "common/weights/reshard_plan.h"
#include "services/trainer/publish/fleet_tables.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

// Four experts in the second layer, whose router has a bias in float32.
model::ModelSpec ExpertSpec() {
  model::ModelSpec spec;
  spec.vocab_size = 61;
  spec.hidden_size = 24;
  spec.max_position_embeddings = 128;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 27;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 6;
  spec.layers.assign(2, layer);
  spec.layers.back().experts = {.num_experts = 4,
                                .intermediate_size = 8,
                                .routing = {.top_k = 2,
                                            .score = model::RoutingSpec::Score::kSigmoid,
                                            .correction_bias = true},
                                .shared_intermediate_size = 10};
  return spec;
}

class PartManifestsTest : public ::testing::TestWithParam<bool> {};

TEST_P(PartManifestsTest, AreThoseOfTheRanksAndMoveNothingElse) {
  const bool whole_experts = GetParam();
  const model::ModelSpec spec = ExpertSpec();
  constexpr int kRanks = 2;
  const weights::LayoutForm form{.float32_elements = 2, .whole_experts = whole_experts};
  ASSERT_OK_AND_ASSIGN(const weights::Manifest whole,
                       weights::MakeManifest(model::ParameterTable(spec), io::DType::kBF16));
  ASSERT_OK_AND_ASSIGN(const weights::ModelLayout rollout,
                       weights::LayoutOf(spec, {}, kRanks, /*ep=*/1, form));
  ASSERT_OK_AND_ASSIGN(const std::vector<weights::Manifest> parts, PartManifests(whole, rollout));
  const comm::MeshShape mesh{.dp_shard = 2, .ep = 2};
  ASSERT_OK_AND_ASSIGN(const weights::ModelLayout trainer,
                       weights::LayoutOf(spec, {}, mesh.tp, mesh.ep, {.float32_elements = 2}));
  ASSERT_OK_AND_ASSIGN(const weights::ReshardPlan plan,
                       weights::MakeReshardPlan(weights::TrainerHoldings(trainer, mesh),
                                                weights::RolloutHoldings(rollout),
                                                {.element_bytes = 2, .bucket_bytes = 4096}));

  int64_t num_empty = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const model::ExpertParallel experts =
        whole_experts ? model::ExpertParallel{rank, kRanks, /*of_tensor_ranks=*/true}
                      : model::ExpertParallel();
    ASSERT_OK_AND_ASSIGN(
        const weights::Manifest expected,
        weights::MakeManifest(model::ParameterTable(spec, {}, {rank, kRanks}, experts),
                              io::DType::kBF16));
    EXPECT_OK(weights::CheckSameTensors(expected, parts[rank]));
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, weights::ManifestBytes(parts[rank]));
    EXPECT_EQ(plan.received_bytes[rank], bytes);
    for (const auto& tensor : parts[rank].tensors()) {
      ASSERT_OK_AND_ASSIGN(const int64_t size, weights::TensorBytes(tensor));
      num_empty += size == 0 ? 1 : 0;
    }
  }
  // Each rank lacks two experts of three matrices.
  EXPECT_EQ(num_empty, whole_experts ? kRanks * 2 * 3 : 0);
}

INSTANTIATE_TEST_SUITE_P(Experts, PartManifestsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Whole" : "InParts"; });

}  // namespace
}  // namespace tandem::trainer
