// The sharded model with a value head: values and gradients are those of plain autograd over whole
// parameters, and a critic begins from a language model's folder.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/io/model_folder.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 11;

at::Tensor TestValueLoss(const at::Tensor& values) { return (values - 0.25).square().sum() * 0.1; }

std::string GoldenFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source == nullptr ? "." : source) + "/tests/services/trainer/golden";
}

class ValueModel : public ::testing::TestWithParam<int> {};

TEST_P(ValueModel, HasTheValuesAndGradientsOfPlainAutograd) {
  const model::ModelSpec spec = model::ValueModelSpec(SmallSpec());
  const std::vector<TokenSequence> sequences = RandomSequences(5, 9, spec.vocab_size, 3);
  const WholeModel whole(spec, kSeed);
  at::Tensor expected_values = whole.ForwardValues(Pack(sequences, 2));
  const at::Tensor expected_loss = TestValueLoss(expected_values);
  expected_loss.backward();
  const std::vector<at::Tensor> expected = whole.Gradients();

  testing::LocalMesh world({.dp_shard = GetParam()});
  std::vector<double> losses(GetParam());
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, kSeed);

    ASSERT_OK_AND_ASSIGN(const at::Tensor values, model->ForwardValues(Pack(sequences, 2)));
    for (const PackedBatch& batch :
         Deal(sequences, mesh.rank(), mesh.size(), /*micro_batches=*/2, /*stride=*/2)) {
      ASSERT_OK_AND_ASSIGN(const double part, model->ForwardBackwardValues(batch, TestValueLoss));
      losses[mesh.rank()] += part;
    }

    EXPECT_LT(RelativeDifference(values, expected_values.detach()), 1e-5);
    ASSERT_OK(model->ReduceGradients());
    const std::vector<at::Tensor> actual = GatherParameters(*model, mesh.shard(), &UnitShard::grad);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t u = 0; u < actual.size(); ++u) {
      EXPECT_LT(RelativeDifference(actual[u], expected[u]), 1e-5) << "parameter " << u;
    }
  });
  double loss = 0;
  for (const double part : losses) loss += part;
  EXPECT_NEAR(loss, expected_loss.item<double>(), 1e-5 * expected_loss.item<double>());
}

INSTANTIATE_TEST_SUITE_P(Ranks, ValueModel, ::testing::Values(1, 2, 3));

TEST(ValueModel, BeginsFromALanguageModelWithAHeadThatDoesNotDependOnTheRanks) {
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(GoldenFolder()));
  ASSERT_OK_AND_ASSIGN(model::ModelSpec policy,
                       model::ParseModelSpec(folder.config().json, folder.config().path));
  const model::ModelSpec spec = model::ValueModelSpec(policy);
  std::vector<at::Tensor> values;
  for (const int ranks : {1, 2}) {
    testing::LocalMesh world({.dp_shard = ranks});
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options;
      options.spec = spec;
      options.mesh = &mesh;
      options.value_head_seed = 5;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      ASSERT_OK(model->Load(folder));
      ASSERT_OK_AND_ASSIGN(at::Tensor out, model->ForwardValues(Pack({{1, 2, 3}, {4, 5, 6, 7}})));
      if (mesh.rank() == 0) values.push_back(out);
    });
  }
  ASSERT_EQ(values.size(), 2);
  EXPECT_GT(values[0].abs().max().item<double>(), 1e-3);  // the head was drawn
  EXPECT_LT(RelativeDifference(values[0], values[1]), 1e-6);
}

TEST(ValueModel, RefusesToSayLogProbs) {
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = SmallSpec();
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto policy, ShardedModel::Create(options));
    options.spec = model::ValueModelSpec(SmallSpec());
    ASSERT_OK_AND_ASSIGN(auto critic, ShardedModel::Create(options));
    EXPECT_THAT(
        critic->Forward(Pack({{1, 2}})),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("this model has a value head")));
    EXPECT_THAT(policy->ForwardValues(Pack({{1, 2}})),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("this model has a language-model head")));
  });
}

}  // namespace
}  // namespace tandem::trainer
