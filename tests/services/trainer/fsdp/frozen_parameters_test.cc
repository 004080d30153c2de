// Frozen parameters have no gradient, no moments and do not change; the others train as ever.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/shared_layers.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

const std::vector<std::string> kEmbeddingAndNorms = {"model.embed_tokens.weight", "*norm.weight"};

struct Case {
  std::string name;
  std::vector<std::string> frozen = kEmbeddingAndNorms;
  comm::MeshShape mesh = {};
  bool tied = false;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  int64_t min_elements = 0;
  bool reshard_after_forward = true;
  bool shared = false;  // layers read others' keys and values, and have inputs (shared_layers.h)
};

std::vector<Case> Cases() {
  return {
      {.name = "one rank"},
      {.name = "two ranks", .mesh = {.dp_shard = 2}},
      {.name = "copies", .mesh = {.dp_replicate = 2, .dp_shard = 2}},
      {.name = "copies of one rank", .mesh = {.dp_replicate = 2}},
      {.name = "merged units", .mesh = {.dp_shard = 3}, .min_elements = 3000},
      {.name = "one trainable unit", .mesh = {.dp_shard = 2}, .min_elements = 1 << 30},
      {.name = "tied", .mesh = {.dp_shard = 2}, .tied = true},
      {.name = "checkpointed",
       .mesh = {.dp_shard = 2},
       .checkpointing = ActivationCheckpointing::kFull},
      {.name = "selectively checkpointed",
       .mesh = {.dp_shard = 2},
       .checkpointing = ActivationCheckpointing::kSelective},
      {.name = "units that stay", .mesh = {.dp_shard = 2}, .reshard_after_forward = false},
      {.name = "only the last block trains",
       .frozen = {"model.embed_tokens.weight", "model.layers.0.*", "model.layers.1.*",
                  "model.norm.weight", "lm_head.weight"},
       .mesh = {.dp_shard = 2}},
      {.name = "only the head trains", .frozen = {"model.*"}, .mesh = {.dp_shard = 2}},
      {.name = "matrices",
       .frozen = {"*_proj.weight", "lm_head.weight"},
       .mesh = {.dp_shard = 2},
       .checkpointing = ActivationCheckpointing::kSelective},
      {.name = "the layers that make keys for others",
       .frozen = {"model.embed*", "model.per_layer*", "model.layers.0.*", "model.layers.1.*",
                  "model.layers.2.*"},
       .mesh = {.dp_shard = 2},
       .shared = true},
      {.name = "one of them, and the table of inputs",
       .frozen = {"model.embed*", "model.layers.0.*", "model.layers.1.*"},
       .mesh = {.dp_shard = 2},
       .checkpointing = ActivationCheckpointing::kFull,
       .shared = true},
  };
}

ShardedModelOptions OptionsOf(const Case& c, const comm::DeviceMesh& mesh) {
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.spec.tie_word_embeddings = c.tied;
  if (c.shared) tandem::testing::ShareLayers(options.spec);
  options.mesh = &mesh;
  options.activation_checkpointing = c.checkpointing;
  options.reshard_after_forward = c.reshard_after_forward;
  options.unit_limits = {.min_elements = c.min_elements, .frozen_parameters = c.frozen};
  return options;
}

std::vector<PackedBatch> Batches(const comm::DeviceMesh& mesh, uint64_t seed) {
  return Deal(RandomSequences(7, 13, SmallSpec().vocab_size, seed), mesh.rank(), mesh.size(), 2);
}

TEST(FrozenParameters, LeaveTheGradientsOfTheOthersAsTheyAre) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    testing::LocalMesh world(c.mesh);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(c, mesh)));
      SetParameters(*model, 5);
      WholeModel whole(model->transformer().spec(), 5);
      for (const PackedBatch& batch : Batches(mesh, 1)) {
        ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
      }
      ASSERT_OK(model->ReduceGradients());
      const PackedBatch all = Pack(RandomSequences(7, 13, SmallSpec().vocab_size, 1));
      TestLoss(whole.Forward(all)).backward();

      const auto gradients = GatherParameters(*model, mesh.shard(), &UnitShard::grad);
      const auto expected = whole.Gradients();
      for (size_t i = 0; i < expected.size(); ++i) {
        const model::Parameter& parameter = model->transformer().table().parameter(i);
        if (!parameter.trainable) {
          EXPECT_FALSE(model->shards()[parameter.unit].grad.defined()) << parameter.name;
          continue;
        }
        EXPECT_LT(RelativeDifference(gradients[i], expected[i]), c.shared ? 8e-5 : 2e-5)
            << parameter.name;
      }
    });
  }
}

// Trains some steps; `after_step` may change the model in between. Returns the gradient norms.
std::vector<double> Train(ShardedModel& model, AdamW& optimizer, const comm::DeviceMesh& mesh,
                          const std::function<void()>& after_step) {
  std::vector<double> norms;
  for (uint64_t step = 0; step < 3; ++step) {
    for (const PackedBatch& batch : Batches(mesh, 20 + step)) {
      EXPECT_OK(model.ForwardBackward(batch, TestLoss).status());
    }
    const auto result = optimizer.Step(0.01);
    EXPECT_OK(result.status());
    norms.push_back(result.ok() ? result->grad_norm : NAN);
    after_step();
  }
  return norms;
}

TEST(FrozenParameters, DoNotChangeAndTheOthersTrainAsIfTheirGradientsWereIgnored) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    testing::LocalMesh world(c.mesh);
    world.Run([&](const comm::DeviceMesh& mesh) {
      // Without clipping, so that the norm of the reference, which counts all, changes nothing.
      const AdamWOptions adamw = {.weight_decay = 0.3, .grad_clip = 0};
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(c, mesh)));
      SetParameters(*model, 5);
      const model::ParameterTable& table = model->transformer().table();
      const auto before = GatherParameters(*model, mesh.shard(), &UnitShard::master);
      AdamW optimizer(adamw, *model, mesh);
      Train(*model, optimizer, mesh, [] {});

      // The reference trains everything and takes back what it did to the frozen ones.
      Case all = c;
      all.frozen.clear();
      ASSERT_OK_AND_ASSIGN(auto reference, ShardedModel::Create(OptionsOf(all, mesh)));
      SetParameters(*reference, 5);
      AdamW reference_optimizer(adamw, *reference, mesh);
      Train(*reference, reference_optimizer, mesh, [&] {
        const model::ParameterTable& units = reference->transformer().table();
        for (size_t i = 0; i < before.size(); ++i) {
          if (table.parameter(static_cast<int>(i)).trainable) continue;
          const model::Parameter& parameter = units.parameter(static_cast<int>(i));
          UnitShard& shard = reference->shards()[parameter.unit];
          const int64_t begin = std::max(parameter.offset, shard.offset);
          const int64_t end =
              std::min(parameter.offset + parameter.numel, shard.offset + shard.master.numel());
          if (begin >= end) continue;
          shard.master.narrow(0, begin - shard.offset, end - begin)
              .copy_(before[i].narrow(0, begin - parameter.offset, end - begin));
        }
        reference->MastersChanged();
      });

      const auto after = GatherParameters(*model, mesh.shard(), &UnitShard::master);
      const auto expected = GatherParameters(*reference, mesh.shard(), &UnitShard::master);
      for (size_t i = 0; i < after.size(); ++i) {
        const model::Parameter& parameter = table.parameter(static_cast<int>(i));
        EXPECT_EQ(at::equal(after[i], before[i]), !parameter.trainable) << parameter.name;
        EXPECT_LT(RelativeDifference(after[i], expected[i]), 1e-4) << parameter.name;
      }
    });
  }
}

TEST(FrozenParameters, ARoutersCorrectionBiasIsOneAndHasNoWeightDecay) {
  model::ModelSpec spec = SmallSpec();
  spec.layers.back().experts = {.num_experts = 6,
                                .intermediate_size = 8,
                                .routing = {.top_k = 2,
                                            .normalize = true,
                                            .score = model::RoutingSpec::Score::kSigmoid,
                                            .correction_bias = true}};
  testing::LocalMesh world({.dp_shard = 2});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, 5);
    const auto before = GatherParameters(*model, mesh.shard(), &UnitShard::master);
    AdamW optimizer({.weight_decay = 0.3}, *model, mesh);
    Train(*model, optimizer, mesh, [] {});
    const auto after = GatherParameters(*model, mesh.shard(), &UnitShard::master);
    const model::ParameterTable& table = model->transformer().table();
    for (size_t i = 0; i < after.size(); ++i) {
      const std::string& name = table.parameter(static_cast<int>(i)).name;
      EXPECT_EQ(at::equal(after[i], before[i]), name.ends_with("e_score_correction_bias")) << name;
    }
  });
}

TEST(FrozenParameters, CountInNoGradientNorm) {
  for (const comm::MeshShape& shape :
       {comm::MeshShape{}, comm::MeshShape{.dp_shard = 2}, comm::MeshShape{.tp = 2}}) {
    testing::LocalMesh world(shape);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf({}, mesh)));
      SetParameters(*model, 5);
      AdamW optimizer({}, *model, mesh);
      const auto sequences = RandomSequences(7, 13, SmallSpec().vocab_size, 1);
      // Tensor-parallel ranks compute the same batch.
      for (const PackedBatch& batch :
           Deal(sequences, mesh.shard().rank(), mesh.shard().size(), 2)) {
        ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
      }
      ASSERT_OK_AND_ASSIGN(const AdamW::StepResult result, optimizer.Step(0.01));

      WholeModel whole(SmallSpec(), 5);
      TestLoss(whole.Forward(Pack(sequences))).backward();
      const auto gradients = whole.Gradients();
      double trained = 0, all = 0;
      for (size_t i = 0; i < gradients.size(); ++i) {
        const double sum = gradients[i].to(at::kDouble).square().sum().item<double>();
        all += sum;
        if (model->transformer().table().parameter(static_cast<int>(i)).trainable) trained += sum;
      }
      EXPECT_NEAR(result.grad_norm, std::sqrt(trained), 1e-4 * std::sqrt(trained));
      EXPECT_GT(std::sqrt(all), 1.01 * result.grad_norm);
    });
  }
}

TEST(FrozenParameters, TakeMemoryForTheirValuesOnly) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    testing::LocalMesh world({});
    world.Run([&](const comm::DeviceMesh& mesh) {
      const auto create = [&](const std::vector<std::string>& frozen) {
        ShardedModelOptions options = OptionsOf({.name = "", .frozen = frozen}, mesh);
        options.compute_dtype = dtype;
        return ShardedModel::Create(options).value();
      };
      const auto all = create({});
      const auto rest = create(kEmbeddingAndNorms);
      AdamW all_moments({}, *all, mesh);
      AdamW rest_moments({}, *rest, mesh);
      int64_t frozen = 0;
      for (const model::Unit& unit : rest->transformer().table().units()) {
        if (!unit.trainable) frozen += unit.numel;
      }
      // The embedding, and the norms of three blocks and of the head.
      EXPECT_EQ(frozen, 61 * 20 + (3 * 2 + 1) * 20);
      const int64_t master = dtype == at::kFloat ? 0 : 4;
      EXPECT_EQ(all->memory_bytes().parameters - rest->memory_bytes().parameters, frozen * master);
      EXPECT_EQ(all->memory_bytes().gradients - rest->memory_bytes().gradients, frozen * 4);
      EXPECT_EQ(all_moments.state_bytes() - rest_moments.state_bytes(), frozen * 8);
    });
  }
}

TEST(FrozenParameters, InComputeDtypeAreTheRoundedMasters) {
  testing::LocalMesh world({.dp_shard = 2});
  world.Run([&](const comm::DeviceMesh& mesh) {
    std::vector<std::vector<at::Tensor>> parameters;
    for (const std::vector<std::string>& frozen :
         {std::vector<std::string>{}, kEmbeddingAndNorms}) {
      ShardedModelOptions options = OptionsOf({.name = "", .frozen = frozen}, mesh);
      options.compute_dtype = at::kBFloat16;
      options.keeps_digests = true;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      ASSERT_OK(model->RandomInit(3));
      for (const UnitShard& shard : model->shards()) EXPECT_TRUE(shard.digests->is_complete());
      parameters.push_back(GatherParameters(*model, mesh.shard(), &UnitShard::computed));
    }
    for (size_t i = 0; i < parameters[0].size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[0][i], parameters[1][i])) << i;
    }
  });
}

}  // namespace
}  // namespace tandem::trainer
