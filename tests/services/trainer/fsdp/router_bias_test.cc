// Correction biases of routers that move by the load of experts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/io/dtype.h"
#include "common/model/arena.h"
#include "common/weights/manifest.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr double kRate = 0.001;
constexpr int64_t kExperts = 6;
constexpr char kName[] = "model.layers.1.mlp.gate.e_score_correction_bias";

model::ModelSpec CorrectedSpec() {
  model::ModelSpec spec = SmallSpec();
  for (size_t i = 1; i < spec.layers.size(); ++i) {
    spec.layers[i].experts = {.num_experts = kExperts,
                              .intermediate_size = 8,
                              .routing = {.top_k = 2,
                                          .normalize = true,
                                          .score = model::RoutingSpec::Score::kSigmoid,
                                          .correction_bias = true}};
  }
  return spec;
}

int IndexOf(const model::ParameterTable& table, const std::string& name) {
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    if (table.parameters()[i].name == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

bool IsBias(const std::string& name) { return absl::EndsWith(name, "e_score_correction_bias"); }

struct Setting {
  comm::MeshShape mesh;
  at::ScalarType dtype = at::kFloat;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  int micro_batches = 1;
};

// The bias before and after each of `steps` updates, and the load in the first of them.
struct Moved {
  std::vector<at::Tensor> biases;
  std::vector<int64_t> load;
};

Moved Move(const Setting& setting, int steps) {
  Moved out;
  absl::Mutex mu;
  testing::LocalMesh world(setting.mesh);
  const model::ModelSpec spec = CorrectedSpec();
  const std::vector<TokenSequence> sequences = RandomSequences(7, 12, spec.vocab_size, 3);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    options.compute_dtype = setting.dtype;
    options.activation_checkpointing = setting.checkpointing;
    options.unit_limits.moves_correction_biases = true;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, 5);
    const int index = IndexOf(model->transformer().table(), kName);
    const auto read = [&] {
      const at::Tensor bias = GatherParameters(*model, mesh, &UnitShard::master)[index];
      if (mesh.rank() == 0) out.biases.push_back(bias.clone());
    };
    read();
    for (int step = 0; step < steps; ++step) {
      for (const PackedBatch& batch :
           Deal(sequences, mesh.data_rank(), mesh.num_data_ranks(), setting.micro_batches)) {
        ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
      }
      model->ZeroGradients();
      const std::vector<int64_t> rows = model->TakeExpertRows()[1];
      ASSERT_OK(model->MoveCorrectionBiases(kRate));
      read();
      if (step > 0 || mesh.tensor().rank() > 0) continue;
      absl::MutexLock lock(&mu);
      out.load.resize(rows.size());
      for (size_t e = 0; e < rows.size(); ++e) out.load[e] += rows[e];
    }
  });
  return out;
}

TEST(RouterBias, MovesTowardsAnEvenLoad) {
  const Moved moved = Move({}, 1);
  ASSERT_EQ(moved.load.size(), static_cast<size_t>(kExperts));
  double mean = 0;
  for (const int64_t rows : moved.load) mean += static_cast<double>(rows) / kExperts;
  bool up = false, down = false;
  for (int64_t e = 0; e < kExperts; ++e) {
    const double before = moved.biases[0][e].item<double>();
    const double after = moved.biases[1][e].item<double>();
    const auto load = static_cast<double>(moved.load[e]);
    const double sign = load < mean ? 1.0 : load > mean ? -1.0 : 0.0;
    EXPECT_NEAR(after - before, sign * kRate, 1e-6) << "expert " << e << ", load " << load;
    up = up || sign > 0;
    down = down || sign < 0;
  }
  EXPECT_TRUE(up && down);
}

TEST(RouterBias, DoesNotDependOnMeshAndMicroBatches) {
  const Moved expected = Move({}, 6);
  for (const Setting& setting :
       {Setting{.micro_batches = 3}, Setting{.mesh = {.dp_shard = 2}},
        Setting{.mesh = {.dp_shard = 3}}, Setting{.mesh = {.dp_replicate = 2}},
        Setting{.mesh = {.ep = 2}}, Setting{.mesh = {.tp = 2}},
        Setting{.mesh = {.dp_shard = 2, .sequence = 2}},
        Setting{.checkpointing = ActivationCheckpointing::kFull},
        Setting{.checkpointing = ActivationCheckpointing::kSelective}}) {
    SCOPED_TRACE(absl::StrCat("replicate ", setting.mesh.dp_replicate, ", shard ",
                              setting.mesh.dp_shard, ", ep ", setting.mesh.ep, ", tp ",
                              setting.mesh.tp, ", sequence ", setting.mesh.sequence));
    const Moved found = Move(setting, 6);
    ASSERT_EQ(found.biases.size(), expected.biases.size());
    EXPECT_TRUE(at::allclose(found.biases.back(), expected.biases.back(), 0, 1e-6));
  }
}

// bfloat16 has no numbers between 0.5 and 0.5 + 16 of these steps.
TEST(RouterBias, KeepsSmallStepsInABfloat16Model) {
  const Moved moved = Move({.dtype = at::kBFloat16}, 1);
  const at::Tensor steps = (moved.biases[1] - moved.biases[0]).abs();
  EXPECT_GT(steps.gt(kRate / 2).sum().item<int64_t>(), 1);
  EXPECT_TRUE((steps.lt(1e-6) | (steps - kRate).abs().lt(1e-6)).all().item<bool>());
}

TEST(RouterBias, IsBroughtByEveryWeightUpdateIfItMoves) {
  const model::ModelSpec spec = CorrectedSpec();
  const auto trainable = [&](const model::UnitLimits& limits) {
    const auto manifest =
        weights::MakeManifest(model::ParameterTable(spec, limits), io::DType::kF32);
    EXPECT_OK(manifest.status());
    for (const auto& tensor : manifest->tensors()) {
      if (tensor.name() == kName) return tensor.trainable();
    }
    ADD_FAILURE() << "no " << kName;
    return false;
  };
  EXPECT_FALSE(trainable({}));
  EXPECT_TRUE(trainable({.moves_correction_biases = true}));
  EXPECT_FALSE(trainable({.frozen_parameters = {kName}, .moves_correction_biases = true}));
}

TEST(RouterBias, IsInFloat32InABfloat16Model) {
  const model::ParameterTable table(CorrectedSpec());
  const auto manifest = weights::MakeManifest(table, io::DType::kBF16);
  ASSERT_OK(manifest.status());
  for (const auto& tensor : manifest->tensors()) {
    EXPECT_EQ(tensor.dtype(), IsBias(tensor.name()) ? "float32" : "bfloat16") << tensor.name();
  }
  model::Arena arena(table, at::kBFloat16);
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const bool is_bias = IsBias(table.segment(table.segments()[i]).name);
    const auto ref = table.segments()[i];
    EXPECT_EQ(arena.Get(ref.parameter).scalar_type(), is_bias ? at::kFloat : at::kBFloat16);
    EXPECT_EQ(static_cast<int64_t>(arena.SegmentBytes(i).size()),
              table.segment(ref).numel * (is_bias ? 4 : 2));
  }
}

// Frozen or moved, and also where other parameters are frozen.
TEST(RouterBias, SharesNoUnitWithOthers) {
  for (const model::UnitLimits& limits :
       {model::UnitLimits{.min_elements = 1 << 20},
        model::UnitLimits{.min_elements = 1 << 20, .frozen_parameters = {"*norm*"}},
        model::UnitLimits{.frozen_parameters = {"*norm*"}, .moves_correction_biases = true}}) {
    const model::ParameterTable table(CorrectedSpec(), limits);
    for (const model::Unit& unit : table.units()) {
      for (const int index : unit.parameters) {
        EXPECT_EQ(unit.in_float32, table.parameter(index).in_float32) << unit.name;
        EXPECT_EQ(IsBias(table.parameter(index).name), unit.in_float32) << unit.name;
      }
    }
  }
}

TEST(RouterBias, HasAUnitOfItsOwnKind) {
  const model::ParameterTable table(CorrectedSpec(),
                                    {.min_elements = 1 << 20, .moves_correction_biases = true});
  for (const model::Unit& unit : table.units()) {
    for (const int index : unit.parameters) {
      const bool is_bias = IsBias(table.parameter(index).name);
      EXPECT_EQ(unit.moved, is_bias) << unit.name;
      EXPECT_EQ(unit.trainable, !is_bias) << unit.name;
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
