#include "services/trainer/optim/muon.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/config/load.h"
#include "common/io/read_file.h"
#include "common/sharding/shard_extent.h"
#include "services/trainer/optim/make_optimizer.h"
#include "services/trainer/optim/newton_schulz.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::LocalMesh;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int kSteps = 3;
constexpr double kRate = 0.02;

// As in tests/parity/muon_golden.py.
at::Tensor Noise(int64_t numel, double phase) {
  at::Tensor out = at::empty({numel});
  for (int64_t i = 0; i < numel; ++i) {
    const double wave = std::sin(static_cast<double>(i) * 12.9898 + phase * 78.233) * 437.5453;
    out[i] = static_cast<float>(wave - std::floor(wave) - 0.5);
  }
  return out;
}

// Fills every tensor of the model with noise, of which a rank has its part.
void Fill(ShardedModel& model, at::Tensor UnitShard::*part, double phase) {
  const model::ParameterTable& table = model.transformer().table();
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    UnitShard& shard = model.shards()[table.parameter(ref.parameter).unit];
    const int64_t begin = std::max(segment.offset, shard.offset);
    const int64_t end =
        std::min(segment.offset + segment.numel, shard.offset + shard.master.numel());
    if (begin >= end) continue;
    (shard.*part)
        .narrow(0, begin - shard.offset, end - begin)
        .copy_(Noise(segment.numel, phase).narrow(0, begin - segment.offset, end - begin));
  }
}

// The shards of a real table without the model: the test says what the gradients are.
class FakeModel : public ShardedModel {
 public:
  FakeModel(const comm::DeviceMesh& mesh, const model::UnitLimits& limits,
            const model::ModelSpec& spec)
      : transformer_(spec, limits, /*tensor_group=*/nullptr,
                     mesh.shape().ep > 1 ? &mesh.expert() : nullptr) {
    for (const model::Unit& unit : transformer_.table().units()) {
      const comm::ProcessGroup& ranks = unit.of_experts ? mesh.expert_shard() : mesh.shard();
      const sharding::ShardExtent extent = sharding::ExtentOf(unit.numel, ranks.size());
      UnitShard shard;
      shard.master = shard.computed = at::zeros({extent.owned});
      shard.grad = at::zeros({extent.owned});
      shard.numel = unit.numel;
      shard.padded_numel = extent.padded;
      shard.offset = extent.owned * ranks.rank();
      shards_.push_back(std::move(shard));
    }
    Fill(*this, &UnitShard::master, 1.0);
  }
  const model::Transformer& transformer() const override { return transformer_; }
  at::Device device() const override { return at::kCPU; }
  absl::Status Load(const io::ModelFolder&) override { return absl::OkStatus(); }
  absl::Status RandomInit(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<model::LogProbs> Forward(const PackedBatch&) override { return model::LogProbs{}; }
  absl::StatusOr<model::LogProbs> ForwardWithSquares(const PackedBatch&) override {
    return model::LogProbs{};
  }
  absl::StatusOr<at::Tensor> QueueForwardBackward(const PackedBatch&,
                                                  const LossFunction&) override {
    return at::Tensor();
  }
  absl::StatusOr<at::Tensor> ForwardValues(const PackedBatch&) override { return at::Tensor(); }
  absl::StatusOr<at::Tensor> QueueForwardBackwardValues(const PackedBatch&,
                                                        const ValueLossFunction&) override {
    return at::Tensor();
  }
  std::vector<UnitShard>& shards() override { return shards_; }
  absl::Status ReduceGradients() override { return absl::OkStatus(); }
  void ZeroGradients() override {
    for (UnitShard& shard : shards_) shard.grad.zero_();
  }
  void MastersChanged() override { FAIL() << "the optimizer tells of each unit"; }
  void MasterChanged(int unit, int64_t begin, int64_t end) override {
    if (end == shards_[unit].master.numel()) ++num_changed;
  }
  at::Tensor NewState(int64_t numel) override { return at::zeros({numel}); }
  MemoryBytes memory_bytes() const override { return {}; }
  int64_t peak_tensor_bytes() const override { return 0; }
  int peak_gathered_units() const override { return 0; }
  std::vector<std::pair<std::string, double>> TakePhaseSeconds() override { return {}; }

  size_t num_changed = 0;

 private:
  model::Transformer transformer_;
  std::vector<UnitShard> shards_;
};

std::unique_ptr<FakeModel> MakeModel(const comm::DeviceMesh& mesh,
                                     const model::UnitLimits& limits = {},
                                     const model::ModelSpec& spec = SmallSpec()) {
  return std::make_unique<FakeModel>(mesh, limits, spec);
}

void TakeSteps(FakeModel& model, Optimizer& optimizer) {
  model.num_changed = 0;
  for (int step = 0; step < kSteps; ++step) {
    Fill(model, &UnitShard::grad, 2.0 + step);
    ASSERT_OK_AND_ASSIGN(const Optimizer::StepResult result, optimizer.Step(kRate));
    ASSERT_FALSE(result.skipped);
  }
  EXPECT_EQ(model.num_changed, kSteps * model.shards().size());
}

// Every tensor of which the rank has a part, by name, flat. Collective.
std::map<std::string, at::Tensor> Tensors(ShardedModel& model, const comm::DeviceMesh& mesh) {
  const std::vector<at::Tensor> parameters = GatherParameters(model, mesh, &UnitShard::master);
  const model::ParameterTable& table = model.transformer().table();
  std::map<std::string, at::Tensor> out;
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    if (segment.numel == 0) continue;
    const model::Parameter& parameter = table.parameter(ref.parameter);
    out[segment.name] =
        parameters[ref.parameter].narrow(0, segment.offset - parameter.offset, segment.numel);
  }
  return out;
}

bool IsHiddenMatrix(const std::string& name) { return absl::EndsWith(name, "_proj.weight"); }

TEST(Muon, FollowsPyTorchOnWideAndTallMatrices) {
  const char* source = std::getenv("TANDEM_SOURCE");
  ASSERT_OK_AND_ASSIGN(const nlohmann::json golden,
                       io::ReadJsonFile(std::string(source == nullptr ? "." : source) +
                                        "/tests/services/trainer/optim/muon_golden.json"));
  ASSERT_EQ(golden["steps"], kSteps);
  ASSERT_EQ(golden["lr"], kRate);
  for (const nlohmann::json& expected : golden["cases"]) {
    LocalMesh world({.dp_shard = 2});
    world.Run([&](const comm::DeviceMesh& mesh) {
      const auto model = MakeModel(mesh);
      MuonOptions options;
      options.adamw.grad_clip = 0;
      options.nesterov = expected["nesterov"];
      if (expected["scale"] == "original") options.scale = MuonScale::kOriginal;
      Muon muon(options, *model, mesh);

      TakeSteps(*model, muon);

      const auto tensors = Tensors(*model, mesh);
      if (mesh.rank() != 0) return;
      const std::string tensor = expected["tensor"];
      for (const auto& [name, values] : tensors) {
        if (!absl::EndsWith(name, absl::StrCat(tensor, ".weight"))) continue;
        const auto wanted = at::tensor(expected["values"].get<std::vector<double>>(), at::kDouble);
        EXPECT_LT((values.to(at::kDouble) - wanted).abs().max().item<double>(), 2e-5)
            << name << ", " << expected["scale"] << ", nesterov " << expected["nesterov"];
      }
    });
  }
}

TEST(Muon, UpdatesEverythingElseAsAdamWDoes) {
  LocalMesh world({.dp_shard = 2});
  world.Run([&](const comm::DeviceMesh& mesh) {
    MuonOptions options;
    options.adamw.grad_clip = 0.5;
    options.lr_ratio = 3;
    const auto model = MakeModel(mesh), reference = MakeModel(mesh);
    Muon muon(options, *model, mesh);
    AdamW adamw(options.adamw, *reference, mesh);

    TakeSteps(*model, muon);
    TakeSteps(*reference, adamw);

    const auto tensors = Tensors(*model, mesh), expected = Tensors(*reference, mesh);
    for (const auto& [name, values] : tensors) {
      const double difference = RelativeDifference(values, expected.at(name));
      if (IsHiddenMatrix(name)) {
        EXPECT_GT(difference, 1e-3) << name;
      } else {
        EXPECT_LT(difference, 1e-6) << name;
      }
    }
  });
}

// Compares the hidden matrices after steps by Muon on `shape` with those in `first`, which becomes them if
// it is empty. Returns the names compared, once for each rank.
std::vector<std::string> ExpectSameMatrices(const comm::MeshShape& shape,
                                            const model::UnitLimits& limits,
                                            const model::ModelSpec& spec,
                                            std::map<std::string, at::Tensor>& first) {
  std::vector<std::string> compared;
  LocalMesh world(shape);
  absl::Mutex mu;
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = MakeModel(mesh, limits, spec);
    MuonOptions options;
    options.adamw.grad_clip = 0;
    Muon muon(options, *model, mesh);
    TakeSteps(*model, muon);
    const auto tensors = Tensors(*model, mesh);
    absl::MutexLock lock(&mu);
    if (first.empty()) first = tensors;
    for (const auto& [name, values] : tensors) {
      if (!IsHiddenMatrix(name)) continue;
      EXPECT_TRUE(at::equal(values, first.at(name))) << name;
      compared.push_back(name);
    }
  });
  return compared;
}

TEST(Muon, MatricesDoNotDependOnRanksOrUnits) {
  std::map<std::string, at::Tensor> first;
  struct Case {
    comm::MeshShape shape;
    model::UnitLimits limits;
  };
  for (const Case& c :
       {Case{{.dp_shard = 1}, {}}, Case{{.dp_shard = 2}, {}}, Case{{.dp_shard = 3}, {1 << 30, 0}},
        Case{{.dp_replicate = 2}, {0, 100}}, Case{{.dp_replicate = 2, .dp_shard = 2}, {}}}) {
    ExpectSameMatrices(c.shape, c.limits, SmallSpec(), first);
  }
}

TEST(Muon, MatricesDoNotDependOnTheRanksThatSplitExperts) {
  model::ModelSpec spec = SmallSpec();
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 4,
                     .intermediate_size = 6,
                     .routing = {.top_k = 2},
                     .bias = true,
                     .shared_intermediate_size = 8};
  }
  std::map<std::string, at::Tensor> first;
  size_t num_compared = 0;
  for (const comm::MeshShape& shape :
       {comm::MeshShape{}, comm::MeshShape{.ep = 2}, comm::MeshShape{.dp_shard = 3, .ep = 2},
        comm::MeshShape{.dp_replicate = 2, .ep = 2}, comm::MeshShape{.ep = 4}}) {
    const auto compared = ExpectSameMatrices(shape, {.max_elements = 300}, spec, first);
    num_compared += std::count_if(compared.begin(), compared.end(), [](const std::string& name) {
      return absl::StrContains(name, ".experts.");
    });
  }
  // Three layers of four experts of three matrices, on 1, 1, 3, 2 and 1 copies of ranks.
  EXPECT_EQ(num_compared, size_t{36} * (1 + 1 + 3 + 2 + 1));
}

TEST(Muon, HasMomentumForMatricesAndTwoMomentsForTheRest) {
  LocalMesh world({});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = MakeModel(mesh);
    const Muon muon({}, *model, mesh);
    int64_t matrices = 0, others = 0;
    for (const auto ref : model->transformer().table().segments()) {
      const model::Segment& segment = model->transformer().table().segment(ref);
      (IsHiddenMatrix(segment.name) ? matrices : others) += segment.numel;
    }
    EXPECT_EQ(muon.state_bytes(), 4 * (matrices + 2 * others));
  });
}

TEST(Muon, SkipsANonFiniteGradientAndResetsItsState) {
  LocalMesh world({.dp_shard = 2});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = MakeModel(mesh);
    Muon muon({}, *model, mesh);
    TakeSteps(*model, muon);
    EXPECT_EQ(muon.num_steps(), kSteps);
    const auto before = Tensors(*model, mesh);
    Fill(*model, &UnitShard::grad, 9);
    if (mesh.rank() == 1) model->shards()[1].grad[0] = NAN;

    ASSERT_OK_AND_ASSIGN(const Optimizer::StepResult result, muon.Step(kRate));

    EXPECT_TRUE(result.skipped);
    for (const auto& [name, values] : Tensors(*model, mesh)) {
      EXPECT_TRUE(at::equal(values, before.at(name))) << name;
    }
    muon.Reset();
    EXPECT_EQ(muon.num_steps(), 0);
    for (size_t u = 0; u < model->shards().size(); ++u) {
      for (const Optimizer::ShardState& state : muon.StateOf(u)) {
        EXPECT_EQ(state.tensor.abs().max().item<float>(), 0) << state.kind;
      }
    }
  });
}

TEST(NewtonSchulz, BringsSingularValuesNearOne) {
  const at::Tensor matrix = Noise(12 * 30, 4).view({12, 30});
  for (const at::Tensor& x : {matrix, matrix.t().contiguous()}) {
    const at::Tensor before = x.clone();

    const at::Tensor result = NewtonSchulz(x, 5);

    EXPECT_EQ(result.sizes(), x.sizes());
    EXPECT_TRUE(at::equal(x, before));
    const at::Tensor values = std::get<1>(at::linalg_svd(result));
    EXPECT_GT(values.min().item<float>(), 0.6f);
    EXPECT_LT(values.max().item<float>(), 1.3f);
  }
  EXPECT_TRUE(at::equal(NewtonSchulz(at::zeros({2, 3}), 5), at::zeros({2, 3})));
}

TEST(MakeOptimizer, RefusesMuonWithTensorParallelism) {
  ASSERT_OK_AND_ASSIGN(
      const config::v1::RunConfig config,
      config::LoadRunConfig({}, {"actor.optim.name=muon", "actor.optim.muon.lr=1e-3"}));
  LocalMesh world({.tp = 2});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = MakeModel(mesh);

    EXPECT_THAT(MakeOptimizer(config.actor().optim(), *model, mesh).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tp 2")));
  });
  LocalMesh alone({});
  alone.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = MakeModel(mesh);

    ASSERT_OK_AND_ASSIGN(const auto optimizer, MakeOptimizer(config.actor().optim(), *model, mesh));

    EXPECT_EQ(optimizer->AllKinds().back(), kMomentumBuffer);
  });
}

}  // namespace
}  // namespace tandem::trainer
