// A model whose experts are split over ranks trains as one rank does: norms, weights and log-probs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/model/numerics.h"
#include "services/trainer/optim/adamw.h"
#include "services/trainer/optim/muon.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::LocalMesh;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 11;
constexpr int kSteps = 4;

model::ModelSpec WithExperts(const model::ExpertSpec& experts) {
  model::ModelSpec spec = SmallSpec();
  spec.tie_word_embeddings = true;
  for (model::LayerSpec& layer : spec.layers) layer.experts = experts;
  return spec;
}

model::ModelSpec Qwen3Moe() {
  model::ModelSpec spec = WithExperts(
      {.num_experts = 8, .intermediate_size = 7, .routing = {.top_k = 3, .normalize = true}});
  for (model::LayerSpec& layer : spec.layers) layer.attention.qk_norm.emplace();
  return spec;
}

model::ModelSpec Mixtral() {
  return WithExperts(
      {.num_experts = 4, .intermediate_size = 9, .routing = {.top_k = 2, .normalize = true}});
}

// Each head's keys and values of a latent.
void AddLatents(model::ModelSpec& spec, int64_t q_rank) {
  spec.ropes.front() = {.rotary_dim = 4, .interleaved = true};
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.attention.qkv_bias = false;
    layer.attention.v_head_dim = 6;
    layer.attention.latent = {.q_rank = q_rank, .kv_rank = 11, .rope_dim = 4};
  }
}

// A dense layer first, groups of experts, and a shared one; without its latents.
model::ModelSpec DeepSeekV2() {
  model::ModelSpec spec =
      WithExperts({.num_experts = 8,
                   .intermediate_size = 5,
                   .routing = {.top_k = 3, .num_groups = 4, .top_groups = 2, .scale = 1.5},
                   .shared_intermediate_size = 10,
                   .shared_gate = false});
  spec.layers.front().experts.reset();
  return spec;
}

model::ModelSpec DeepSeekV2WithLatents() {
  model::ModelSpec spec = DeepSeekV2();
  AddLatents(spec, /*q_rank=*/0);
  return spec;
}

// Sigmoids with a correction, groups by the sum of their two best experts, and latents of queries too.
model::ModelSpec DeepSeekV3() {
  model::ModelSpec spec =
      WithExperts({.num_experts = 8,
                   .intermediate_size = 5,
                   .routing = {.top_k = 3,
                               .normalize = true,
                               .score = model::RoutingSpec::Score::kSigmoid,
                               .correction_bias = true,
                               .num_groups = 4,
                               .top_groups = 2,
                               .group_score = model::RoutingSpec::GroupScore::kSumOfTwo,
                               .scale = 2.5},
                   .shared_intermediate_size = 10,
                   .shared_gate = false});
  spec.layers.front().experts.reset();
  AddLatents(spec, /*q_rank=*/9);
  return spec;
}

// Biases of experts and router, and a correction that no step trains.
model::ModelSpec WithBiases() {
  return WithExperts({.num_experts = 4,
                      .intermediate_size = 6,
                      .routing = {.top_k = 2,
                                  .normalize = true,
                                  .score = model::RoutingSpec::Score::kSigmoid,
                                  .bias = true,
                                  .correction_bias = true},
                      .bias = true,
                      .shared_intermediate_size = 8});
}

struct Setting {
  comm::MeshShape mesh;
  model::UnitLimits limits;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  at::ScalarType dtype = at::kFloat;
  int num_sequences = 7;
  bool has_muon = false;
};

ShardedModelOptions OptionsOf(const model::ModelSpec& spec, const Setting& setting,
                              const comm::DeviceMesh& mesh) {
  ShardedModelOptions options;
  options.spec = spec;
  options.mesh = &mesh;
  options.unit_limits = setting.limits;
  options.activation_checkpointing = setting.checkpointing;
  options.compute_dtype = setting.dtype;
  return options;
}

struct Trained {
  std::vector<double> losses, norms;
  // Of each rank, its part of every parameter, flat.
  std::vector<std::vector<at::Tensor>> parts;
};

Trained Train(const model::ModelSpec& spec, const Setting& setting) {
  const std::vector<TokenSequence> sequences =
      RandomSequences(setting.num_sequences, 12, spec.vocab_size, 3);
  const int ranks = setting.mesh.size();
  Trained out;
  out.parts.resize(ranks);
  std::vector<std::vector<double>> norms(ranks);
  std::vector<double> losses(kSteps, 0.0);
  absl::Mutex mu;
  LocalMesh world(setting.mesh);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(spec, setting, mesh)));
    SetParameters(*model, kSeed);
    const AdamWOptions adamw = {.grad_clip = 0.1};
    std::unique_ptr<Optimizer> optimizer;
    if (setting.has_muon) {
      optimizer = std::make_unique<Muon>(MuonOptions{.adamw = adamw}, *model, mesh);
    } else {
      optimizer = std::make_unique<AdamW>(adamw, *model, mesh);
    }
    for (int step = 0; step < kSteps; ++step) {
      for (const PackedBatch& batch :
           Deal(sequences, mesh.data_rank(), mesh.num_data_ranks(), 1, 2)) {
        ASSERT_OK_AND_ASSIGN(const double loss, model->ForwardBackward(batch, TestLoss));
        absl::MutexLock lock(&mu);
        if (mesh.leads_data_rank()) losses[step] += loss;
      }
      ASSERT_OK_AND_ASSIGN(const Optimizer::StepResult result, optimizer->Step(0.01));
      norms[mesh.rank()].push_back(result.grad_norm);
    }
    out.parts[mesh.rank()] = GatherParameters(*model, mesh, &UnitShard::master);
  });
  for (const std::vector<double>& other : norms) EXPECT_EQ(other, norms[0]);
  out.norms = norms[0];
  out.losses = losses;
  return out;
}

model::ParameterTable TableOf(const model::ModelSpec& spec, const comm::MeshShape& mesh, int rank) {
  return model::ParameterTable(spec, {}, {rank % mesh.tp, mesh.tp},
                               {rank / mesh.tp % mesh.ep, mesh.ep});
}

// A part of a bias of queries, keys and values without the keys': these shift all scores of a row
// alike, so their gradient is zero but for rounding, of which AdamW makes steps of full size.
at::Tensor WithoutBiasOfKeys(const at::Tensor& bias, const model::AttentionSpec& attention,
                             int tp) {
  const int64_t queries = attention.num_heads * attention.head_dim / tp;
  const int64_t keys = attention.num_kv_heads * attention.head_dim / tp;
  return at::cat(
      {bias.narrow(0, 0, queries), bias.narrow(0, queries + keys, bias.numel() - queries - keys)});
}

void ExpectTheRunOfOneRank(const model::ModelSpec& spec, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    const comm::MeshShape& mesh = setting.mesh;
    SCOPED_TRACE(absl::StrCat("replicate ", mesh.dp_replicate, ", shard ", mesh.dp_shard, ", ep ",
                              mesh.ep, ", tp ", mesh.tp, ", sequence ", mesh.sequence));
    Setting alone = setting;
    alone.mesh = {};
    const Trained expected = Train(spec, alone);
    const Trained found = Train(spec, setting);
    ASSERT_EQ(found.norms.size(), static_cast<size_t>(kSteps));
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(found.losses[step], expected.losses[step], 1e-5);
      EXPECT_NEAR(found.norms[step], expected.norms[step], 2e-5 * expected.norms[step]);
    }
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const model::ParameterTable table = TableOf(spec, mesh, rank);
      const std::vector<at::Tensor> parts = PartOfParameters(spec, table, expected.parts[0]);
      for (size_t p = 0; p < parts.size(); ++p) {
        if (parts[p].numel() == 0) continue;
        const std::string& name = table.parameter(static_cast<int>(p)).name;
        at::Tensor actual = found.parts[rank][p], wanted = parts[p];
        if (absl::EndsWith(name, "qkv_proj.bias")) {
          const model::AttentionSpec& attention = spec.layers[0].attention;
          actual = WithoutBiasOfKeys(actual, attention, mesh.tp);
          wanted = WithoutBiasOfKeys(wanted, attention, mesh.tp);
        }
        EXPECT_LT(RelativeDifference(actual, wanted), 2e-4) << "rank " << rank << ", " << name;
      }
    }
  }
}

TEST(ExpertParallel, Qwen3MoeTrainsAsOnOneRank) {
  ExpectTheRunOfOneRank(Qwen3Moe(), {{.mesh = {.ep = 2}},
                                     {.mesh = {.dp_shard = 2, .ep = 2}},
                                     {.mesh = {.dp_replicate = 2, .ep = 2}},
                                     {.mesh = {.ep = 4}}});
}

TEST(ExpertParallel, MixtralTrainsAsOnOneRank) {
  ExpectTheRunOfOneRank(Mixtral(), {{.mesh = {.ep = 2}},
                                    {.mesh = {.dp_shard = 2, .ep = 2}},
                                    {.mesh = {.tp = 2, .ep = 2}},
                                    {.mesh = {.dp_shard = 2, .sequence = 2, .ep = 2}}});
}

TEST(ExpertParallel, DeepSeekV2TrainsAsOnOneRank) {
  ExpectTheRunOfOneRank(DeepSeekV2(), {{.mesh = {.ep = 2}}, {.mesh = {.dp_shard = 2, .ep = 2}}});
}

TEST(ExpertParallel, LatentsTrainAsOnOneRank) {
  for (const model::ModelSpec& spec : {DeepSeekV2WithLatents(), DeepSeekV3()}) {
    ExpectTheRunOfOneRank(spec, {{.mesh = {.ep = 2}},
                                 {.mesh = {.dp_shard = 2, .ep = 2}},
                                 {.mesh = {.tp = 2, .ep = 2}},
                                 {.mesh = {.dp_shard = 2, .sequence = 2, .ep = 2}}});
  }
}

TEST(ExpertParallel, MuonTrainsAsOnOneRank) {
  ExpectTheRunOfOneRank(Mixtral(), {{.mesh = {.ep = 2}, .has_muon = true},
                                    {.mesh = {.dp_shard = 2, .ep = 2}, .has_muon = true}});
}

TEST(ExpertParallel, BiasesTrainAsOnOneRank) {
  ExpectTheRunOfOneRank(WithBiases(), {{.mesh = {.ep = 2}}, {.mesh = {.tp = 2, .ep = 2}}});
}

TEST(ExpertParallel, UnitsOfAnySizeTrainAsOnOneRank) {
  ExpectTheRunOfOneRank(Qwen3Moe(),
                        {{.mesh = {.dp_shard = 2, .ep = 2}, .limits = {.min_elements = 100000}},
                         {.mesh = {.dp_shard = 2, .ep = 2}, .limits = {.max_elements = 500}},
                         {.mesh = {.ep = 2}, .limits = {.max_elements = 100}}});
}

TEST(ExpertParallel, RanksWithoutTokensComputeThePeersRows) {
  ExpectTheRunOfOneRank(Qwen3Moe(), {{.mesh = {.ep = 2}, .num_sequences = 1},
                                     {.mesh = {.dp_shard = 2, .ep = 2}, .num_sequences = 3}});
}

TEST(ExpertParallel, FrozenExpertsStayAndTheRestTrainsAsOnOneRank) {
  const model::UnitLimits frozen = {
      .frozen_parameters = {"*experts*", "model.embed_tokens.weight"}};
  model::ModelSpec spec = Mixtral();
  spec.tie_word_embeddings = false;
  ExpectTheRunOfOneRank(spec, {{.mesh = {.ep = 2}, .limits = frozen},
                               {.mesh = {.dp_shard = 2, .ep = 2}, .limits = frozen}});
}

TEST(ExpertParallel, CheckpointingChangesNoBit) {
  const comm::MeshShape mesh{.dp_shard = 2, .ep = 2};
  const Trained expected = Train(DeepSeekV2(), {.mesh = mesh});
  for (const auto mode : {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    const Trained found = Train(DeepSeekV2(), {.mesh = mesh, .checkpointing = mode});
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_EQ(found.losses, expected.losses);
  }
}

// Log-probs of each sequence, in its place.
std::vector<at::Tensor> LogProbsOf(const model::ModelSpec& spec, const Setting& setting,
                                   const std::vector<TokenSequence>& sequences) {
  std::vector<at::Tensor> out(sequences.size());
  LocalMesh world(setting.mesh);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(spec, setting, mesh)));
    SetParameters(*model, kSeed);
    const int ranks = mesh.num_data_ranks();
    ASSERT_OK_AND_ASSIGN(
        const model::LogProbs found,
        model->Forward(Deal(sequences, mesh.data_rank(), ranks, /*micro_batches=*/1).front()));
    int64_t row = 0;
    for (size_t i = mesh.data_rank(); i < sequences.size(); i += ranks) {
      const auto rows = static_cast<int64_t>(sequences[i].size()) - 1;
      out[i] = found.logprobs.narrow(0, row, rows);
      row += rows;
    }
  });
  return out;
}

TEST(ExpertParallel, ExactLogProbsHaveTheBitsOfOneRank) {
  model::SetNumerics(model::Numerics::kExact);
  for (const model::ModelSpec& spec :
       {Qwen3Moe(), Mixtral(), DeepSeekV2(), DeepSeekV2WithLatents(), DeepSeekV3(), WithBiases()}) {
    const std::vector<TokenSequence> sequences = RandomSequences(9, 40, spec.vocab_size, 5);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const std::vector<at::Tensor> expected = LogProbsOf(spec, {.dtype = dtype}, sequences);
      for (const comm::MeshShape& mesh :
           {comm::MeshShape{.ep = 2}, comm::MeshShape{.dp_shard = 2, .ep = 2}}) {
        const std::vector<at::Tensor> found =
            LogProbsOf(spec, {.mesh = mesh, .dtype = dtype}, sequences);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(at::equal(found[i], expected[i])) << "sequence " << i;
        }
      }
    }
  }
  model::SetNumerics(model::Numerics::kFast);
}

TEST(ExpertParallel, ARankHoldsItsShareOfTheExperts) {
  const model::ModelSpec spec = Qwen3Moe();
  const model::ParameterTable whole(spec);
  int64_t of_experts = 0;
  for (const model::Parameter& parameter : whole.parameters()) {
    if (parameter.of_expert) of_experts += parameter.numel;
  }
  const int64_t dense = whole.num_parameters() - of_experts;
  LocalMesh world({.dp_shard = 2, .ep = 2});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(spec, {}, mesh)));
    int64_t held = 0;
    int64_t padding = 0;
    for (const UnitShard& shard : model->shards()) {
      held += shard.master.numel();
      padding += shard.padded_numel - shard.numel;
    }
    EXPECT_GE(held, (dense + of_experts) / 4);
    EXPECT_LE(held, (dense + of_experts) / 4 + padding + 1);
  });
}

TEST(ExpertParallel, RefusesWhatCannotBeSplit) {
  const auto refusal = [](const model::ModelSpec& spec, const Setting& setting) {
    absl::Status status;
    absl::Mutex mu;
    LocalMesh world(setting.mesh);
    world.Run([&](const comm::DeviceMesh& mesh) {
      const absl::Status found = ShardedModel::Create(OptionsOf(spec, setting, mesh)).status();
      absl::MutexLock lock(&mu);
      status = found;
    });
    return status;
  };
  EXPECT_THAT(refusal(SmallSpec(), {.mesh = {.ep = 2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no experts")));
  EXPECT_THAT(refusal(Mixtral(), {.mesh = {.ep = 3}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("4 experts"), HasSubstr("3 ranks"))));
  EXPECT_THAT(
      refusal(Mixtral(), {.mesh = {.ep = 2}, .limits = {.frozen_parameters = {"*experts.0.*"}}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.frozen_parameters")));
}

TEST(ExpertParallel, ARankThatIsGoneEndsThePassWithItsError) {
  LocalMesh world({.ep = 2});
  world.Run([](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(Mixtral(), {}, mesh)));
    SetParameters(*model, kSeed);
    if (mesh.rank() == 1) {
      mesh.Abort("rank 1 was killed");
      return;
    }
    const auto loss = model->ForwardBackward(Pack(RandomSequences(2, 9, 61, 3)), TestLoss);
    ASSERT_FALSE(loss.ok());
    EXPECT_THAT(std::string(loss.status().message()), HasSubstr("rank 1 was killed"));
  });
}

}  // namespace
}  // namespace tandem::trainer
