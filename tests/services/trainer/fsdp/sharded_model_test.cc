// What the sharded model promises besides its gradients.
#include "services/trainer/fsdp/sharded_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/synchronization/mutex.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "tests/fakes/local_mesh.h"
#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/sanitizer.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ShardedModel, GivesTheLogProbsOfTheWholeModel) {
  const model::ModelSpec spec = SmallSpec();
  const std::vector<TokenSequence> sequences = RandomSequences(6, 9, spec.vocab_size, 4);
  WholeModel whole(spec, 2);
  testing::LocalWorld world(3);
  world.Run([&](comm::ProcessGroup& group) {
    for (const bool trainable : {true, false}) {
      ShardedModelOptions options;
      options.spec = spec;
      const comm::DeviceMesh mesh(group);
      options.mesh = &mesh;
      options.trainable = trainable;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      SetParameters(*model, 2);
      for (const PackedBatch& batch : Deal(sequences, group.rank(), 3, 2, 2)) {
        const model::LogProbs expected = whole.Forward(batch);
        ASSERT_OK_AND_ASSIGN(const model::LogProbs actual, model->Forward(batch));
        EXPECT_FALSE(actual.logprobs.requires_grad());
        EXPECT_LT(RelativeDifference(actual.logprobs, expected.logprobs.detach()), 1e-5);
        EXPECT_LT(RelativeDifference(actual.entropy, expected.entropy.detach()), 1e-5);
      }
      EXPECT_LE(model->peak_gathered_units(), 2);
    }
  });
}

TEST(ShardedModel, SumsSquaredProbabilitiesOverAnyMesh) {
  const std::vector<TokenSequence> sequences = RandomSequences(4, 9, SmallSpec().vocab_size, 4);
  const PackedBatch batch = Pack(sequences);
  at::Tensor expected;
  for (const comm::MeshShape& shape :
       {comm::MeshShape{}, comm::MeshShape{.dp_shard = 2}, comm::MeshShape{.tp = 2}}) {
    absl::Mutex mu;
    testing::LocalMesh world(shape);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options;
      options.spec = SmallSpec();
      options.mesh = &mesh;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      SetParameters(*model, 2);

      ASSERT_OK_AND_ASSIGN(const model::LogProbs out, model->ForwardWithSquares(batch));
      ASSERT_OK_AND_ASSIGN(const model::LogProbs plain, model->Forward(batch));

      ASSERT_OK_AND_ASSIGN(const model::LogProbs empty, model->ForwardWithSquares(PackedBatch()));
      EXPECT_EQ(empty.sum_pi_squared.numel(), 0);

      EXPECT_FALSE(plain.sum_pi_squared.defined());
      EXPECT_TRUE(at::equal(out.logprobs, plain.logprobs));
      // At least the square of the target's probability, at most 1.
      EXPECT_TRUE((out.sum_pi_squared >= (out.logprobs * 2).exp() * 0.999).all().item<bool>());
      EXPECT_TRUE((out.sum_pi_squared <= 1.001).all().item<bool>());
      absl::MutexLock lock(&mu);
      if (!expected.defined()) expected = out.sum_pi_squared;
      EXPECT_LT(RelativeDifference(out.sum_pi_squared, expected), 1e-5);
    });
  }
}

TEST(ShardedModel, AnswersAnEmptyBatchWithNothing) {
  testing::LocalWorld world(2);
  world.Run([&](comm::ProcessGroup& group) {
    ShardedModelOptions options;
    options.spec = SmallSpec();
    const comm::DeviceMesh mesh(group);
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    ASSERT_OK_AND_ASSIGN(const model::LogProbs out, model->Forward(PackedBatch()));
    EXPECT_EQ(out.logprobs.numel(), 0);
    ASSERT_OK_AND_ASSIGN(const double loss,
                         model->ForwardBackward(PackedBatch(), [](const auto&) -> at::Tensor {
                           ADD_FAILURE() << "there is nothing to take a loss of";
                           return {};
                         }));
    EXPECT_EQ(loss, 0.0);
    for (const UnitShard& shard : model->shards()) {
      if (shard.grad.numel() > 0) EXPECT_EQ(shard.grad.abs().max().item<float>(), 0.0f);
    }
  });
}

TEST(ShardedModel, ARankOwnsItsShareOfEveryUnit) {
  testing::LocalWorld world(3);
  world.Run([&](comm::ProcessGroup& group) {
    ShardedModelOptions options;
    options.spec = SmallSpec();
    const comm::DeviceMesh mesh(group);
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    const auto& units = model->transformer().table().units();
    ASSERT_EQ(model->shards().size(), units.size());
    for (size_t u = 0; u < units.size(); ++u) {
      const UnitShard& shard = model->shards()[u];
      EXPECT_EQ(shard.numel, units[u].numel);
      EXPECT_EQ(shard.padded_numel % 3, 0);
      EXPECT_LT(shard.padded_numel - shard.numel, 3);
      EXPECT_EQ(shard.master.numel(), shard.padded_numel / 3);
      EXPECT_EQ(shard.offset, group.rank() * shard.padded_numel / 3);
    }
  });
}

TEST(ShardedModel, DrawsTheSameParametersForAnyNumberOfRanks) {
  std::map<int, std::vector<at::Tensor>> drawn;
  for (const int ranks : {1, 2, 4}) {
    testing::LocalWorld world(ranks);
    world.Run([&](comm::ProcessGroup& group) {
      ShardedModelOptions options;
      options.spec = SmallSpec();
      const comm::DeviceMesh mesh(group);
      options.mesh = &mesh;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      ASSERT_OK(model->RandomInit(5));
      const std::vector<at::Tensor> whole = GatherParameters(*model, group, &UnitShard::master);
      if (group.rank() == 0) drawn[ranks] = whole;
    });
  }
  ASSERT_FALSE(drawn[1].empty());
  EXPECT_GT(drawn[1][0].abs().max().item<float>(), 0.0f);
  for (size_t u = 0; u < drawn[1].size(); ++u) {
    EXPECT_TRUE(drawn[1][u].equal(drawn[2][u]));
    EXPECT_TRUE(drawn[1][u].equal(drawn[4][u]));
  }
}

TEST(ShardedModel, AFrozenOneHasNoGradients) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  const comm::DeviceMesh mesh(*group);
  options.mesh = &mesh;
  options.trainable = false;
  ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
  for (const UnitShard& shard : model->shards()) EXPECT_FALSE(shard.grad.defined());
  EXPECT_THAT(model->ForwardBackward(Pack({{1, 2, 3}}), TestLoss),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("frozen")));
}

TEST(ShardedModel, GradientsAreZeroAgainAfterZeroGradients) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  const comm::DeviceMesh mesh(*group);
  options.mesh = &mesh;
  ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
  SetParameters(*model, 1);
  ASSERT_OK(model->ForwardBackward(Pack({{1, 2, 3}}), TestLoss).status());
  EXPECT_GT(model->shards()[0].grad.abs().max().item<float>(), 0.0f);
  model->ZeroGradients();
  ASSERT_OK(model->ReduceGradients());
  for (const UnitShard& shard : model->shards()) {
    EXPECT_EQ(shard.grad.abs().max().item<float>(), 0.0f);
  }
}

TEST(ShardedModel, AConstantLossGivesZeroGradients) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  const comm::DeviceMesh mesh(*group);
  options.mesh = &mesh;
  ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
  SetParameters(*model, 1);
  ASSERT_OK_AND_ASSIGN(const double loss,
                       model->ForwardBackward(Pack({{1, 2, 3}}), [](const model::LogProbs&) {
                         return at::full({}, 2.5);
                       }));
  EXPECT_EQ(loss, 2.5);
  for (const UnitShard& shard : model->shards()) {
    EXPECT_EQ(shard.grad.abs().max().item<float>(), 0.0f);
  }
}

TEST(ShardedModel, RefusesABatchWhosePartsDoNotFit) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  const comm::DeviceMesh mesh(*group);
  options.mesh = &mesh;
  ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
  PackedBatch batch = Pack({{1, 2, 3}});
  batch.targets = batch.targets.narrow(0, 0, 1);
  EXPECT_THAT(model->Forward(batch), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr("targets"), HasSubstr("[2]"))));
}

TEST(ShardedModel, NamesRankAndStageWhereAnOperationFails) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  const comm::DeviceMesh mesh(*group);
  options.mesh = &mesh;
  ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
  SetParameters(*model, 1);
  const auto result = model->ForwardBackward(
      Pack({{1, 2, 3}}), [](const model::LogProbs& out) { return out.logprobs + at::ones({7}); });
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kInternal,
                               AllOf(HasSubstr("rank 0"), HasSubstr("stage head"))));
}

TEST(ShardedModel, AnswersWhatTheGroupSaysWhereAPeerFails) {
  testing::LocalWorld world(2, absl::Seconds(20));
  world.Run([&](comm::ProcessGroup& group) {
    ShardedModelOptions options;
    options.spec = SmallSpec();
    const comm::DeviceMesh mesh(group);
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    if (group.rank() == 1) {
      group.Abort("told to");
      return;
    }
    EXPECT_THAT(model->ForwardBackward(Pack({{1, 2, 3}}), TestLoss),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("told to")));
  });
}

TEST(ShardedModel, ARankThatFailsAloneEndsTheWaitOfItsPeers) {
  testing::LocalWorld world(2, absl::Minutes(10));
  world.Run([&](comm::ProcessGroup& group) {
    ShardedModelOptions options;
    options.spec = SmallSpec();
    const comm::DeviceMesh mesh(group);
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, 1);
    const auto loss = [&](const model::LogProbs& out) {
      return group.rank() == 1 ? out.logprobs + at::ones({7}) : TestLoss(out);
    };
    EXPECT_THAT(
        model->ForwardBackward(Pack({{1, 2, 3}}), loss),
        StatusIs(group.rank() == 1 ? absl::StatusCode::kInternal : absl::StatusCode::kAborted,
                 HasSubstr("rank 1")));
  });
}

TEST(TensorMemory, KeepsFreedMemoryForTheNextTensor) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "the sanitizer gives freed memory out late";
  TensorMemory::Install();
  at::Tensor tensor = at::empty({1 << 20}, at::kFloat);
  const void* const first = tensor.data_ptr();
  const int64_t cached = TensorMemory::cached_bytes();
  tensor = at::Tensor();
  EXPECT_GE(TensorMemory::cached_bytes(), cached);
  tensor = at::empty({(1 << 20) - 100}, at::kFloat);
  EXPECT_EQ(tensor.data_ptr(), first);
}

TEST(TensorMemory, KeepsABoundedAmount) {
  TensorMemory::Install();
  for (int i = 1; i < 200; ++i) at::empty({i * 100000}, at::kFloat);
  EXPECT_LE(TensorMemory::cached_bytes() + TensorMemory::current_bytes(),
            TensorMemory::peak_bytes() * 5 / 4 + (64 << 20));
}

TEST(TensorMemory, CountsWhatTensorsHold) {
  TensorMemory::Install();
  const int64_t before = TensorMemory::current_bytes();
  {
    const at::Tensor tensor = at::empty({1000}, at::kFloat);
    EXPECT_EQ(TensorMemory::current_bytes(), before + 4000);
    EXPECT_GE(TensorMemory::peak_bytes(), before + 4000);
  }
  EXPECT_EQ(TensorMemory::current_bytes(), before);
}

}  // namespace
}  // namespace tandem::trainer
