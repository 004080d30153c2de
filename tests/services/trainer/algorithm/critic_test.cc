// The critic against transformers and PyTorch: one token's loss, and two whole steps of values, GAE
// and clipped updates, on any ranks.
#include "services/trainer/algorithm/critic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/value_loss.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/algorithm/critic_golden.h"
#include "tests/services/trainer/algorithm/golden.h"

namespace tandem::trainer {
namespace {

TEST(ValueLoss, AndItsGradientArePyTorchs) {
  const nlohmann::json golden = ReadCriticGolden()["value_loss"];
  const at::Tensor values = Vector(golden["values"]).requires_grad_(true);

  const ValueLoss loss = ClippedValueLoss(values, Vector(golden["old"]), Vector(golden["returns"]),
                                          golden["cliprange"].get<double>());

  EXPECT_LT(Difference(loss.loss, Vector(golden["loss"])), 1e-12);
  EXPECT_LT(Difference(loss.clipped, Vector(golden["clipped"])), 1e-12);
  const at::Tensor gradient = torch::autograd::grad({loss.loss.sum()}, {values})[0];
  EXPECT_LT(Difference(gradient, Vector(golden["grad"])), 1e-12);
}

// The golden script's head: what a rank owns of it.
void SetValueHead(ShardedModel& model) {
  const model::ParameterTable& table = model.transformer().table();
  const auto set = [&](int index, const at::Tensor& values) {
    const model::Parameter& parameter = table.parameter(index);
    UnitShard& shard = model.shards()[parameter.unit];
    for (int64_t i = 0; i < parameter.numel; ++i) {
      const int64_t at = parameter.offset + i - shard.offset;
      if (at >= 0 && at < shard.master.numel()) shard.master[at] = values[i];
    }
  };
  const at::NoGradGuard no_grad;
  const int64_t hidden = model.transformer().spec().hidden_size;
  set(table.value_head(), (at::arange(hidden, at::kFloat).remainder(7) - 3) * 0.05);
  set(table.value_head_bias(), at::full({1}, 0.1f));
  model.MastersChanged();
}

struct CriticCase {
  int ranks;
  int64_t max_tokens;
};

class CriticSteps : public ::testing::TestWithParam<CriticCase> {};

TEST_P(CriticSteps, AreTransformersAndPyTorchs) {
  const nlohmann::json golden = ReadCriticGolden()["critic"];
  CriticOptions options;
  options.cliprange_value = golden["cliprange"];
  options.epochs = golden["epochs"];
  options.mini_batch.groups_each = golden["groups_each"];
  options.mini_batch.max_tokens_per_micro_batch = GetParam().max_tokens;
  AdvantageOptions advantages;
  advantages.kind = &kGaeAdvantages;
  advantages.gamma = golden["gamma"];
  advantages.lam = golden["lam"];

  testing::LocalMesh world({.dp_shard = GetParam().ranks});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const std::unique_ptr<ShardedModel> model = GoldenModel(mesh, /*value_head=*/true);
    SetValueHead(*model);
    AdamW optimizer({}, *model, mesh);
    Critic critic(options, *model, optimizer, mesh);
    for (const nlohmann::json& expected : golden["steps"]) {
      TrainingBatch batch;
      batch.num_groups = 4;
      for (size_t i = 0; i < golden["samples"].size(); ++i) {
        const nlohmann::json& sample = golden["samples"][i];
        batch.sequences.push_back(GoldenSequence(sample["token_ids"], sample["prompt"],
                                                 static_cast<int64_t>(i / 2),
                                                 golden["rewards"][i]));
      }
      Metrics metrics;
      std::vector<std::string> skipped;
      ASSERT_OK(critic.Score(batch, metrics));
      SpreadRewards(batch);
      AssignAdvantages(batch, advantages);
      for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const Sequence& sequence = batch.sequences[i];
        EXPECT_LT(Difference(at::tensor(sequence.values), Vector(expected["values"][i])), 2e-5);
        EXPECT_LT(Difference(at::tensor(sequence.returns), Vector(expected["returns"][i])), 2e-5);
      }
      ASSERT_OK(critic.Update(batch, golden["lr"], metrics, skipped));
      ExpectMetrics(metrics, expected["metrics"]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CriticSteps,
                         ::testing::Values(CriticCase{1, 4096}, CriticCase{1, 12},
                                           CriticCase{2, 4096}, CriticCase{3, 9}),
                         [](const ::testing::TestParamInfo<CriticCase>& info) {
                           return "Ranks" + std::to_string(info.param.ranks) + "Tokens" +
                                  std::to_string(info.param.max_tokens);
                         });

}  // namespace
}  // namespace tandem::trainer
