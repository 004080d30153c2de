// Training routes tokens as it is told: the experts are the recorded ones, their weights its own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/model/expert_recorder.h"
#include "common/model/numerics.h"
#include "services/trainer/data/shared_prefix.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr uint64_t kSeed = 3;
constexpr int64_t kExperts = 6;

// A dense layer and layers with experts.
model::ModelSpec Spec(model::RoutingSpec::Score score = model::RoutingSpec::Score::kSoftmax) {
  model::ModelSpec spec = SmallSpec();
  for (size_t i = 1; i < spec.layers.size(); ++i) {
    spec.layers[i].experts = {.num_experts = kExperts,
                              .intermediate_size = 7,
                              .routing = {.top_k = 2, .normalize = true, .score = score}};
  }
  return spec;
}

model::RoutedLayout LayoutOf(const model::ModelSpec& spec) {
  return model::RoutedLayout::Of(spec).value();
}

// The choice of the model's own routers for each token of the batch.
at::Tensor OwnRouting(const model::ModelSpec& spec, const PackedBatch& batch) {
  const WholeModel whole(spec, kSeed);
  const model::RoutedLayout layout = LayoutOf(spec);
  model::ExpertRecorder recorder(layout, batch.num_tokens());
  const model::RouterPass routers{.recorder = &recorder};
  const at::NoGradGuard no_grad;
  const model::Transformer& model = whole.transformer();
  at::Tensor ends = at::tensor(batch.cu_seqlens, at::kLong);
  model::PackedAttention attention(ends);
  const model::Rotary rotary = model.MakeRotary(batch.positions);
  at::Tensor x = model.Embed(whole, batch.token_ids, batch.positions);
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    x = model.Block(whole, layer, x, rotary, attention, nullptr, &routers);
  }
  at::Tensor out = at::empty({batch.num_tokens(), layout.values_per_token()}, at::kInt);
  const auto experts = recorder.Of(0, batch.num_tokens());
  std::copy(experts.begin(), experts.end(), out.mutable_data_ptr<int32_t>());
  return out;
}

struct Result {
  at::Tensor logprobs;
  std::vector<at::Tensor> gradients;
  std::vector<std::vector<int64_t>> load;
};

struct Setting {
  comm::MeshShape mesh;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  bool replays = true;
};

// Log-probs of one data rank's batch, and gradients of a loss of them.
Result Replayed(const model::ModelSpec& spec, const PackedBatch& batch,
                const Setting& setting = {}) {
  Result out;
  absl::Mutex mu;
  testing::LocalMesh world(setting.mesh);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    options.replays_routing = setting.replays;
    options.activation_checkpointing = setting.checkpointing;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, kSeed);
    const PackedBatch own = mesh.data_rank() == 0 ? batch : PackedBatch();
    ASSERT_OK_AND_ASSIGN(const model::LogProbs scored, model->Forward(own));
    ASSERT_OK(model->ForwardBackward(own, TestLoss).status());
    ASSERT_OK(model->ReduceGradients());
    std::vector<at::Tensor> gradients = GatherParameters(*model, mesh, &UnitShard::grad);
    absl::MutexLock lock(&mu);
    if (mesh.rank() != 0) return;
    out.logprobs = scored.logprobs.clone();
    out.gradients = std::move(gradients);
    out.load = model->TakeExpertRows();
  });
  return out;
}

PackedBatch Batch(const model::ModelSpec& spec) {
  return Pack(RandomSequences(4, 9, spec.vocab_size, 6));
}

// Experts 4 and 5 for all tokens in all layers.
at::Tensor Forced(int64_t num_tokens, const model::RoutedLayout& layout) {
  return at::tensor({4, 5}, at::kInt).repeat({num_tokens, layout.num_layers()});
}

TEST(RouterReplay, OfTheRoutersOwnChoiceChangesNoBit) {
  for (const model::Numerics numerics : {model::Numerics::kFast, model::Numerics::kExact}) {
    model::SetNumerics(numerics);
    PackedBatch batch = Batch(Spec());
    const Result expected = Replayed(Spec(), batch);
    batch.routed_experts = OwnRouting(Spec(), batch);
    const Result found = Replayed(Spec(), batch);
    EXPECT_TRUE(at::equal(found.logprobs, expected.logprobs));
    for (size_t p = 0; p < expected.gradients.size(); ++p) {
      EXPECT_TRUE(at::equal(found.gradients[p], expected.gradients[p])) << p;
    }
    EXPECT_EQ(found.load, expected.load);
  }
  model::SetNumerics(model::Numerics::kFast);
}

TEST(RouterReplay, OfAnotherChoiceIsComputedByTheseExperts) {
  for (const auto score :
       {model::RoutingSpec::Score::kSoftmax, model::RoutingSpec::Score::kSigmoid}) {
    const model::ModelSpec spec = Spec(score);
    PackedBatch batch = Batch(spec);
    const Result own = Replayed(spec, batch);
    batch.routed_experts = Forced(batch.num_tokens(), LayoutOf(spec));
    const Result forced = Replayed(spec, batch);

    EXPECT_GT((forced.logprobs - own.logprobs).abs().max().item<float>(), 1e-3);
    ASSERT_EQ(forced.load.size(), spec.layers.size());
    for (size_t layer = 1; layer < forced.load.size(); ++layer) {
      EXPECT_EQ(forced.load[layer],
                (std::vector<int64_t>{0, 0, 0, 0, batch.num_tokens(), batch.num_tokens()}));
    }
  }
}

// With all experts of a token known, its weights are the softmax over the trainer's own logits of
// these: a model with only those two experts.
TEST(RouterReplay, WeighsTheExpertsByTheTrainersLogits) {
  const model::ModelSpec spec = Spec();
  PackedBatch batch = Batch(spec);
  batch.routed_experts = Forced(batch.num_tokens(), LayoutOf(spec));
  const Result forced = Replayed(spec, batch);

  model::ModelSpec two = spec;
  for (model::LayerSpec& layer : two.layers) {
    if (layer.experts.has_value()) layer.experts->num_experts = 2;
  }
  WholeModel small(two, kSeed);
  const WholeModel whole(spec, kSeed);
  const model::ParameterTable& table = whole.transformer().table();
  const at::NoGradGuard no_grad;
  for (size_t p = 0; p < small.parameters().size(); ++p) {
    std::string name = small.transformer().table().parameter(static_cast<int>(p)).name;
    const bool is_router = name.find("mlp.gate.weight") != std::string::npos;
    for (const auto& [from, to] :
         {std::pair("experts.0.", "experts.4."), {"experts.1.", "experts.5."}}) {
      if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, 10, to);
    }
    for (size_t q = 0; q < table.parameters().size(); ++q) {
      if (table.parameters()[q].name != name) continue;
      const at::Tensor& from = whole.parameters()[q];
      small.parameters()[p].copy_(is_router ? from.narrow(0, 4, 2) : from);
    }
  }
  batch.routed_experts = at::Tensor();
  EXPECT_TRUE(at::allclose(forced.logprobs, small.Forward(batch).logprobs, 1e-4, 1e-5));
}

TEST(RouterReplay, LeavesUnknownTokensToTheRouter) {
  const model::ModelSpec spec = Spec();
  PackedBatch batch = Batch(spec);
  const Result own = Replayed(spec, batch);
  batch.routed_experts = Forced(batch.num_tokens(), LayoutOf(spec));
  // The first sequence is forced, the others are unknown.
  batch.routed_experts.narrow(0, batch.cu_seqlens[1], batch.num_tokens() - batch.cu_seqlens[1])
      .fill_(-1);
  const Result mixed = Replayed(spec, batch);

  const int64_t rows = batch.cu_seqlens[1];
  const auto others = own.logprobs.numel() - rows;
  EXPECT_FALSE(at::equal(mixed.logprobs.narrow(0, 0, rows), own.logprobs.narrow(0, 0, rows)));
  EXPECT_TRUE(at::allclose(mixed.logprobs.narrow(0, rows, others),
                           own.logprobs.narrow(0, rows, others), 1e-5, 1e-6));
}

TEST(RouterReplay, IsTheSameInEveryMesh) {
  const model::ModelSpec spec = Spec();
  PackedBatch batch = Batch(spec);
  batch.routed_experts = OwnRouting(spec, batch);
  batch.routed_experts.narrow(0, 2, 3).copy_(Forced(3, LayoutOf(spec)));
  batch.routed_experts.narrow(0, 7, 2).fill_(-1);
  const Result expected = Replayed(spec, batch);
  for (const Setting& setting :
       {Setting{.mesh = {.dp_shard = 2}}, Setting{.mesh = {.ep = 2}}, Setting{.mesh = {.tp = 2}},
        Setting{.mesh = {.dp_shard = 2, .sequence = 2}},
        Setting{.checkpointing = ActivationCheckpointing::kFull},
        Setting{.checkpointing = ActivationCheckpointing::kSelective}}) {
    const Result found = Replayed(spec, batch, setting);
    SCOPED_TRACE(absl::StrCat("shard ", setting.mesh.dp_shard, ", ep ", setting.mesh.ep, ", tp ",
                              setting.mesh.tp, ", sequence ", setting.mesh.sequence));
    EXPECT_TRUE(at::allclose(found.logprobs, expected.logprobs, 1e-4, 1e-5));
    if (setting.mesh.tp > 1 || setting.mesh.ep > 1) continue;  // a rank has its part of parameters
    for (size_t p = 0; p < expected.gradients.size(); ++p) {
      EXPECT_LT(RelativeDifference(found.gradients[p], expected.gradients[p]), 1e-3) << p;
    }
  }
}

TEST(RouterReplay, IsOffUnlessTheModelReplays) {
  const model::ModelSpec spec = Spec();
  PackedBatch batch = Batch(spec);
  const Result own = Replayed(spec, batch);
  batch.routed_experts = Forced(batch.num_tokens(), LayoutOf(spec));
  EXPECT_TRUE(at::equal(Replayed(spec, batch, {.replays = false}).logprobs, own.logprobs));
}

TEST(RouterReplay, SharesAPrefixAsFarAsItsRoutingIsTheSame) {
  const model::ModelSpec spec = Spec();
  const TokenSequence prefix = RandomSequences(1, 9, spec.vocab_size, 4)[0];
  std::vector<TokenSequence> sequences;
  for (TokenSequence tail : RandomSequences(2, 7, spec.vocab_size, 6)) {
    tail.insert(tail.begin(), prefix.begin(), prefix.end());
    sequences.push_back(tail);
  }
  PackedBatch batch = Pack(sequences);
  const auto size = static_cast<int64_t>(prefix.size());
  ASSERT_GT(size, 2);
  batch.routed_experts = OwnRouting(spec, batch);
  batch.routed_experts.narrow(0, batch.cu_seqlens[1], size)
      .copy_(batch.routed_experts.narrow(0, 0, size));
  EXPECT_EQ(SharePrefixes(batch).prefixes[3], size);

  batch.routed_experts.narrow(0, batch.cu_seqlens[1] + 2, 1).copy_(Forced(1, LayoutOf(spec)));
  const PackedBatch shared = SharePrefixes(batch);
  EXPECT_EQ(shared.prefixes[3], 2);
  EXPECT_EQ(shared.routed_experts.size(0), shared.num_tokens());
  EXPECT_TRUE(at::equal(shared.routed_experts[batch.cu_seqlens[1]],
                        batch.routed_experts[batch.cu_seqlens[1] + 2]));
}

TEST(RouterReplay, NeedsAModelWithExperts) {
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = SmallSpec();
    options.mesh = &mesh;
    options.replays_routing = true;
    EXPECT_THAT(ShardedModel::Create(options).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::HasSubstr("no layer with experts")));
  });
}

}  // namespace
}  // namespace tandem::trainer
