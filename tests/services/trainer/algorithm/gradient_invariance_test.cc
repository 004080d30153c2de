// The gradient of every loss with every aggregation is the same for any number of ranks and any
// micro-batching.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "services/trainer/algorithm/mini_batch.h"
#include "services/trainer/algorithm/policy_objective.h"
#include "services/trainer/algorithm/token_scores.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/algorithm/step_test_support.h"

namespace tandem::trainer {
namespace {

constexpr uint64_t kSeed = 5;

struct Layout {
  int ranks = 1;
  int64_t max_tokens = 4096;
};

struct Case {
  std::string name;
  const PolicyLossKind* mode = &kVanillaLoss;
  LossAggregation aggregation = LossAggregation::kTokenMean;
};

// Old and reference log-probs near the model's own, so that some ratios are clipped and some not,
// advantages of both signs, and importance weights. Everything follows from the seed.
void FillIn(const std::vector<std::vector<float>>& logprobs, TrainingBatch& batch) {
  std::mt19937_64 random(17);
  const auto uniform = [&random] {
    return static_cast<float>(random() % 20001) / 10000.0f - 1.0f;  // in [-1, 1]
  };
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    Sequence& sequence = batch.sequences[i];
    for (float logprob : logprobs[i]) {
      sequence.old_logprobs.push_back(logprob + 0.5f * uniform());
      sequence.ref_logprobs.push_back(logprob + 0.5f * uniform());
      sequence.importance_weights.push_back(1.0f + 0.5f * uniform());
      sequence.advantages.push_back(uniform());
    }
  }
}

// One gradient for each parameter of the whole model.
std::vector<at::Tensor> Gradients(const Case& c, const Layout& layout) {
  std::vector<at::Tensor> out;
  testing::LocalMesh world({.dp_shard = layout.ranks});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = MakeModel(mesh, kSeed);
    TrainingBatch batch = RaggedBatch(3);
    ASSERT_OK_AND_ASSIGN(const auto logprobs,
                         ScoreTokens(batch, mesh, at::kCPU, layout.max_tokens,
                                     [&](const PackedBatch& packed) -> absl::StatusOr<at::Tensor> {
                                       auto scored = model->Forward(packed);
                                       if (!scored.ok()) return scored.status();
                                       return scored->logprobs;
                                     }));
    FillIn(logprobs, batch);
    MiniBatchOptions split;
    split.aggregation = c.aggregation;
    split.loss_scale = 12.0;
    split.max_tokens_per_micro_batch = layout.max_tokens;
    PolicyObjectiveOptions options;
    options.policy_loss = c.mode;
    options.use_kl_loss = true;
    options.kl_loss_coef = 0.1;
    options.entropy_coeff = 0.02;
    const PolicyObjective objective(options);
    UpdateStatistics statistics;
    const std::vector<MiniBatch> mini_batches = SplitBatch(batch, split, mesh);
    ASSERT_EQ(mini_batches.size(), 1u);
    const MiniBatch& mini_batch = mini_batches.front();
    if (layout.max_tokens < 4096) {
      EXPECT_GT(mini_batch.micro_batches.size(), 1u);
    }
    MicroBatchPlace place;
    place.num_tokens = mini_batch.num_tokens;
    place.num_sequences = mini_batch.num_sequences;
    DeferredValues later;
    for (const MicroBatch& micro_batch : mini_batch.micro_batches) {
      ASSERT_OK(model
                    ->ForwardBackward(micro_batch.packed,
                                      [&](const model::LogProbs& scored) {
                                        return objective.Loss(micro_batch, scored, place,
                                                              statistics, later);
                                      })
                    .status());
    }
    ASSERT_OK(model->ReduceGradients());
    const std::vector<at::Tensor> gradients =
        GatherParameters(*model, mesh.shard(), &UnitShard::grad);
    if (mesh.rank() == 0) out = gradients;
  });
  return out;
}

class GradientInvariance : public ::testing::TestWithParam<Case> {};

TEST_P(GradientInvariance, OverRanksAndMicroBatches) {
  const std::vector<at::Tensor> expected = Gradients(GetParam(), {});
  ASSERT_FALSE(expected.empty());
  double largest = 0;
  for (const at::Tensor& gradient : expected) {
    largest = std::max(largest, gradient.abs().max().item<double>());
  }
  ASSERT_GT(largest, 1e-4);
  for (const Layout& layout : {Layout{1, 20}, Layout{2, 4096}, Layout{2, 20}, Layout{3, 4096},
                               Layout{3, 20}, Layout{3, 1}}) {
    const std::vector<at::Tensor> actual = Gradients(GetParam(), layout);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t p = 0; p < expected.size(); ++p) {
      EXPECT_LT(RelativeDifference(actual[p], expected[p]), 1e-5)
          << layout.ranks << " ranks, micro-batches of " << layout.max_tokens
          << " tokens, parameter " << p;
    }
  }
}

std::vector<Case> AllCases() {
  const std::vector<std::pair<std::string, const PolicyLossKind*>> modes = {
      {"Vanilla", &kVanillaLoss},
      {"Gspo", &kGspoLoss},
      {"Cispo", &kCispoLoss},
      {"Sapo", &kSapoLoss}};
  const std::vector<std::pair<std::string, LossAggregation>> aggregations = {
      {"TokenMean", LossAggregation::kTokenMean},
      {"TokenSum", LossAggregation::kTokenSum},
      {"SeqMeanTokenSum", LossAggregation::kSeqMeanTokenSum},
      {"SeqMeanTokenMean", LossAggregation::kSeqMeanTokenMean},
      {"SeqMeanTokenSumNorm", LossAggregation::kSeqMeanTokenSumNorm}};
  std::vector<Case> out;
  for (const auto& [mode_name, mode] : modes) {
    for (const auto& [aggregation_name, aggregation] : aggregations) {
      out.push_back({mode_name + aggregation_name, mode, aggregation});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Losses, GradientInvariance, ::testing::ValuesIn(AllCases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace tandem::trainer
