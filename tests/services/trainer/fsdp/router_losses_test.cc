// Losses of routers: those of transformers (tests/parity/router_golden.py) over steps of training, on
// any number of ranks, and whatever is shared, split or computed again.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "common/model/numerics.h"
#include "services/trainer/data/shared_prefix.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

std::string GoldenFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/tests/services/trainer/golden_router";
}

nlohmann::json Golden() { return io::ReadJsonFile(GoldenFolder() + "/golden.json").value(); }

struct Curve {
  std::vector<double> losses, balance, z, norms;
};

struct Setting {
  comm::MeshShape mesh;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
};

// Trains the golden model as a case says.
Curve Train(const nlohmann::json& golden, const nlohmann::json& of_case, const Setting& setting) {
  const size_t num_steps = of_case["steps"].size();
  const int micro_batches = of_case["micro_batches"];
  Curve curve;
  curve.losses.resize(num_steps);
  absl::Mutex mu;
  testing::LocalMesh world(setting.mesh);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(GoldenFolder()));
    ASSERT_OK_AND_ASSIGN(const nlohmann::json config,
                         io::ReadJsonFile(GoldenFolder() + "/config.json"));
    ShardedModelOptions options;
    ASSERT_OK_AND_ASSIGN(options.spec, model::ParseModelSpec(config, "config.json"));
    options.mesh = &mesh;
    options.activation_checkpointing = setting.checkpointing;
    options.router_losses = {.balance = of_case["balance"], .z = of_case["z"]};
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    ASSERT_OK(model->Load(folder));
    AdamW optimizer({.beta1 = golden["beta1"],
                     .beta2 = golden["beta2"],
                     .weight_decay = golden["weight_decay"],
                     .grad_clip = golden["grad_clip"]},
                    *model, mesh);
    for (size_t step = 0; step < num_steps; ++step) {
      const auto sequences = of_case["steps"][step]["sequences"].get<std::vector<TokenSequence>>();
      int64_t predicted = 0;
      for (const TokenSequence& sequence : sequences) {
        predicted += static_cast<int64_t>(sequence.size()) - 1;
      }
      const auto loss = [&](const model::LogProbs& out) -> at::Tensor {
        return -out.logprobs.sum() / static_cast<double>(predicted);
      };
      for (int m = 0; m < micro_batches; ++m) {
        std::vector<TokenSequence> of_micro_batch;
        for (size_t i = m; i < sequences.size(); i += micro_batches) {
          of_micro_batch.push_back(sequences[i]);
        }
        PackedBatch batch =
            Deal(of_micro_batch, mesh.data_rank(), mesh.num_data_ranks(), 1).front();
        batch.update_tokens = static_cast<double>(predicted);
        ASSERT_OK_AND_ASSIGN(const double part, model->ForwardBackward(batch, loss));
        absl::MutexLock lock(&mu);
        if (mesh.leads_data_rank()) curve.losses[step] += part;
      }
      ASSERT_OK_AND_ASSIGN(const auto result, optimizer.Step(golden["lr"].get<double>()));
      const model::RouterLosses::Values values = model->TakeRouterLosses();
      if (mesh.rank() != 0) continue;
      curve.norms.push_back(result.grad_norm);
      curve.balance.push_back(values.balance);
      curve.z.push_back(values.z);
    }
  });
  for (size_t step = 0; step < num_steps; ++step) {
    curve.losses[step] += of_case["balance"].get<double>() * curve.balance[step] +
                          of_case["z"].get<double>() * curve.z[step];
  }
  return curve;
}

void ExpectGolden(const Setting& setting) {
  const nlohmann::json golden = Golden();
  ASSERT_EQ(golden["cases"].size(), 3u);
  for (const nlohmann::json& of_case : golden["cases"]) {
    SCOPED_TRACE(absl::StrCat("z ", of_case["z"].get<double>(), ", micro-batches ",
                              of_case["micro_batches"].get<int>()));
    const Curve curve = Train(golden, of_case, setting);
    ASSERT_EQ(curve.norms.size(), 4u);
    for (size_t step = 0; step < curve.norms.size(); ++step) {
      const nlohmann::json& expected = of_case["steps"][step];
      EXPECT_NEAR(curve.losses[step], expected["loss"].get<double>(), 5e-5) << "step " << step;
      EXPECT_NEAR(curve.balance[step], expected["balance"].get<double>(), 5e-5) << "step " << step;
      EXPECT_NEAR(curve.z[step], expected["z"].get<double>(), 5e-5) << "step " << step;
      const double norm = expected["grad_norm"];
      EXPECT_NEAR(curve.norms[step], norm, 5e-4 * norm) << "step " << step;
    }
  }
}

TEST(RouterLosses, AreThoseOfTransformersOnOneRank) { ExpectGolden({}); }

TEST(RouterLosses, DoNotDependOnTheMesh) {
  for (const comm::MeshShape& mesh :
       {comm::MeshShape{.dp_shard = 2}, comm::MeshShape{.dp_replicate = 2},
        comm::MeshShape{.ep = 2}, comm::MeshShape{.tp = 2},
        comm::MeshShape{.dp_shard = 2, .sequence = 2}, comm::MeshShape{.dp_shard = 2, .ep = 2},
        comm::MeshShape{.dp_shard = 8}}) {
    SCOPED_TRACE(absl::StrCat("replicate ", mesh.dp_replicate, ", shard ", mesh.dp_shard, ", ep ",
                              mesh.ep, ", tp ", mesh.tp, ", sequence ", mesh.sequence));
    ExpectGolden({.mesh = mesh});
  }
}

TEST(RouterLosses, HaveTheSameBitsWithCheckpointing) {
  const nlohmann::json golden = Golden();
  const nlohmann::json& of_case = golden["cases"].back();
  const Curve expected = Train(golden, of_case, {});
  for (const auto mode : {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    const Curve found = Train(golden, of_case, {.checkpointing = mode});
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_EQ(found.balance, expected.balance);
    EXPECT_EQ(found.z, expected.z);
  }
}

model::ModelSpec SmallExperts() {
  model::ModelSpec spec = SmallSpec();
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {
        .num_experts = 5, .intermediate_size = 7, .routing = {.top_k = 2, .normalize = true}};
  }
  return spec;
}

struct Gradients {
  std::vector<at::Tensor> of_parameters;
  model::RouterLosses::Values losses;
};

// Of one batch, with a head's loss of its rows times `factor`.
Gradients GradientsOf(const model::RouterLossFactors& factors, const PackedBatch& batch,
                      double factor, bool eager = false) {
  Gradients out;
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = SmallExperts();
    options.mesh = &mesh;
    options.router_losses = factors;
    options.eager_attention = eager;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, 3);
    const auto loss = [&](const model::LogProbs& found) { return TestLoss(found) * factor; };
    ASSERT_OK(model->ForwardBackward(batch, loss).status());
    ASSERT_OK(model->ReduceGradients());
    out.of_parameters = GatherParameters(*model, mesh, &UnitShard::grad);
    out.losses = model->TakeRouterLosses();
  });
  return out;
}

// Sequences with a common prefix are computed without it (shared_prefix.h), which eager attention does
// not do.
TEST(RouterLosses, CountASharedPrefixAsOftenAsItIsUsed) {
  const int64_t vocabulary = SmallExperts().vocab_size;
  const TokenSequence prefix = RandomSequences(1, 9, vocabulary, 4)[0];
  std::vector<TokenSequence> sequences;
  for (TokenSequence tail : RandomSequences(3, 7, vocabulary, 6)) {
    tail.insert(tail.begin(), prefix.begin(), prefix.end());
    sequences.push_back(tail);
  }
  const PackedBatch batch = Pack(sequences);
  ASSERT_LT(SharePrefixes(batch).num_tokens(), batch.num_tokens());
  const model::RouterLossFactors factors{.balance = 0.3, .z = 0.1};
  const Gradients whole = GradientsOf(factors, batch, 1.0, /*eager=*/true);
  const Gradients shared = GradientsOf(factors, batch, 1.0);

  EXPECT_NEAR(shared.losses.balance, whole.losses.balance, 1e-6);
  EXPECT_NEAR(shared.losses.z, whole.losses.z, 1e-5);
  ASSERT_EQ(shared.of_parameters.size(), whole.of_parameters.size());
  for (size_t p = 0; p < whole.of_parameters.size(); ++p) {
    EXPECT_LT(RelativeDifference(shared.of_parameters[p], whole.of_parameters[p]), 1e-4) << p;
  }
}

TEST(RouterLosses, HaveGradientsWithoutTheHeads) {
  const PackedBatch batch = Pack(RandomSequences(3, 7, SmallExperts().vocab_size, 6));
  const Gradients of_routers = GradientsOf({.balance = 0.3}, batch, 0.0);
  const Gradients of_both = GradientsOf({.balance = 0.3}, batch, 1.0);
  const Gradients of_head = GradientsOf({}, batch, 1.0);

  double largest = 0;
  for (size_t p = 0; p < of_head.of_parameters.size(); ++p) {
    largest = std::max(largest, of_routers.of_parameters[p].abs().max().item<double>());
    const at::Tensor sum = of_routers.of_parameters[p] + of_head.of_parameters[p];
    EXPECT_TRUE(at::allclose(of_both.of_parameters[p], sum, 1e-4, 1e-5)) << p;
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_GT(of_routers.losses.balance, 0.0);
  EXPECT_EQ(of_head.losses.balance, 0.0);
}

}  // namespace
}  // namespace tandem::trainer
