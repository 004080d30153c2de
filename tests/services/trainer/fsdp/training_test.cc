// Steps of training: the losses and gradient norms do not depend on the number of ranks and
// micro-batches, and are those of plain PyTorch (tests/parity/trainer_golden.py).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
};

struct Setting {
  int ranks = 1;  // that share a copy of the model
  int micro_batches = 1;
  bool checkpointing = false;
  at::ScalarType dtype = at::kFloat;
  int replicas = 1;
  const char* golden = "golden";  // the model's folder
  int expert_ranks = 1;
};

std::string GoldenFolder(const std::string& name) {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/tests/services/trainer/" + name;
}

nlohmann::json Golden(const std::string& name = "golden") {
  return io::ReadJsonFile(GoldenFolder(name) + "/golden.json").value();
}

// What plain PyTorch makes of it.
Curve GoldenCurve(const nlohmann::json& golden) {
  Curve curve;
  for (const nlohmann::json& step : golden["steps"]) {
    curve.losses.push_back(step["loss"]);
    curve.grad_norms.push_back(step["grad_norm"]);
  }
  return curve;
}

// Trains the golden model on the golden sequences.
Curve Train(const Setting& setting) {
  const nlohmann::json golden = Golden(setting.golden);
  const std::string golden_folder = GoldenFolder(setting.golden);
  const size_t num_steps = golden["steps"].size();
  Curve curve{std::vector<double>(num_steps), std::vector<double>(num_steps)};
  const int ranks = setting.ranks * setting.replicas * setting.expert_ranks;
  testing::LocalMesh world(
      {.dp_replicate = setting.replicas, .dp_shard = setting.ranks, .ep = setting.expert_ranks});
  absl::Mutex mu;
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(golden_folder));
    ASSERT_OK_AND_ASSIGN(const nlohmann::json config,
                         io::ReadJsonFile(golden_folder + "/config.json"));
    ShardedModelOptions options;
    ASSERT_OK_AND_ASSIGN(options.spec, model::ParseModelSpec(config, "config.json"));
    options.mesh = &mesh;
    options.activation_checkpointing =
        setting.checkpointing ? ActivationCheckpointing::kFull : ActivationCheckpointing::kNone;
    options.compute_dtype = setting.dtype;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    ASSERT_OK(model->Load(folder));
    AdamW optimizer({.beta1 = golden["beta1"],
                     .beta2 = golden["beta2"],
                     .weight_decay = golden["weight_decay"],
                     .grad_clip = golden["grad_clip"]},
                    *model, mesh);
    for (size_t step = 0; step < num_steps; ++step) {
      const auto sequences = golden["steps"][step]["sequences"].get<std::vector<TokenSequence>>();
      int64_t predicted = 0;
      for (const TokenSequence& sequence : sequences) {
        predicted += static_cast<int64_t>(sequence.size()) - 1;
      }
      const auto loss = [&](const model::LogProbs& out) -> at::Tensor {
        return -out.logprobs.sum() / static_cast<double>(predicted);
      };
      for (const PackedBatch& batch : Deal(sequences, mesh.rank(), ranks, setting.micro_batches)) {
        ASSERT_OK_AND_ASSIGN(const double part, model->ForwardBackward(batch, loss));
        absl::MutexLock lock(&mu);
        curve.losses[step] += part;
      }
      ASSERT_OK_AND_ASSIGN(const auto result, optimizer.Step(golden["lr"].get<double>()));
      if (mesh.rank() == 0) curve.grad_norms[step] = result.grad_norm;
    }
  });
  return curve;
}

void ExpectClose(const Curve& actual, const std::vector<double>& losses,
                 const std::vector<double>& grad_norms) {
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], losses[step], 1e-5 * losses[step]) << "step " << step;
    const double tolerance = step < 3 ? 1e-5 : 1e-3;
    EXPECT_NEAR(actual.grad_norms[step], grad_norms[step], tolerance * grad_norms[step])
        << "step " << step;
  }
}

TEST(Training, FollowsPyTorchOnOneRank) {
  const Curve golden = GoldenCurve(Golden());
  ASSERT_EQ(golden.losses.size(), 20u);
  ExpectClose(Train({.ranks = 1}), golden.losses, golden.grad_norms);
}

TEST(Training, OfLinearAttentionFollowsPyTorch) {
  constexpr const char* kFolder = "golden_linear";
  const Curve golden = GoldenCurve(Golden(kFolder));
  ASSERT_EQ(golden.losses.size(), 4u);
  for (const Setting& setting :
       {Setting{.golden = kFolder}, Setting{.ranks = 2, .golden = kFolder},
        Setting{.ranks = 2, .micro_batches = 2, .checkpointing = true, .golden = kFolder},
        Setting{.micro_batches = 3, .checkpointing = true, .golden = kFolder},
        Setting{.golden = kFolder, .expert_ranks = 2}}) {
    SCOPED_TRACE(absl::StrCat(setting.ranks, " ranks, ", setting.micro_batches, " micro-batches, ",
                              setting.expert_ranks, " expert ranks"));
    ExpectClose(Train(setting), golden.losses, golden.grad_norms);
  }
}

TEST(Training, DoesNotDependOnRanksAndMicroBatches) {
  const Curve one = Train({.ranks = 1});
  for (const Setting& setting :
       {Setting{.ranks = 2}, Setting{.ranks = 3, .micro_batches = 2},
        Setting{.ranks = 1, .micro_batches = 3}, Setting{.ranks = 2, .checkpointing = true},
        Setting{.ranks = 2, .replicas = 2}, Setting{.ranks = 1, .replicas = 2}}) {
    SCOPED_TRACE(absl::StrCat(setting.replicas, " x ", setting.ranks, " ranks, ",
                              setting.micro_batches, " micro-batches"));
    ExpectClose(Train(setting), one.losses, one.grad_norms);
  }
}

TEST(Training, InBfloat16StaysNearFloat32) {
  const Curve exact = Train({.ranks = 1});
  for (const int ranks : {1, 2}) {
    const Curve rounded = Train({.ranks = ranks, .micro_batches = 2, .dtype = at::kBFloat16});
    for (size_t step = 0; step < exact.losses.size(); ++step) {
      EXPECT_NEAR(rounded.losses[step], exact.losses[step], 0.02 * exact.losses[step]);
      EXPECT_NEAR(rounded.grad_norms[step], exact.grad_norms[step], 0.05 * exact.grad_norms[step]);
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
