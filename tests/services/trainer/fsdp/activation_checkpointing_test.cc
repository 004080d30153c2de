// What activation checkpointing saves, in bytes of tensors, and that it changes no bit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/shared_layers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/varied_layers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kSequences = 4;
constexpr int64_t kTokens = 2048;

model::ModelSpec Spec(bool qk_norm) {
  model::ModelSpec spec = SmallSpec();
  spec.hidden_size = 64;
  spec.max_position_embeddings = 1024;
  model::LayerSpec layer = spec.layers.front();
  layer.feed_forward.intermediate_size = 160;
  layer.attention.head_dim = 16;
  if (qk_norm) layer.attention.qk_norm.emplace();
  spec.layers.assign(6, layer);
  return spec;
}

struct Outcome {
  double loss = 0;
  std::vector<at::Tensor> gradients;
  int64_t activation_bytes = 0;  // most that a pass held beside shards and batch
};

Outcome TrainOnce(const model::ModelSpec& spec, at::ScalarType dtype, ActivationCheckpointing mode,
                  int64_t interval) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  ShardedModelOptions options;
  options.spec = spec;
  options.compute_dtype = dtype;
  options.mesh = &mesh;
  options.activation_checkpointing = mode;
  options.activation_checkpointing_interval = interval;
  Outcome outcome;
  const auto model = ShardedModel::Create(options);
  EXPECT_OK(model.status());
  if (!model.ok()) return outcome;
  SetParameters(**model, 3);
  std::vector<TokenSequence> sequences(kSequences, TokenSequence(kTokens / kSequences + 1));
  for (int64_t i = 0; i < kSequences; ++i) {
    for (size_t j = 0; j < sequences[i].size(); ++j) {
      sequences[i][j] = static_cast<int64_t>((j * j + 7 * i) % spec.vocab_size);
    }
  }
  const PackedBatch batch = Pack(sequences);
  EXPECT_EQ(batch.num_tokens(), kTokens);
  const int64_t before = TensorMemory::current_bytes();
  TensorMemory::ResetPeak();
  const absl::StatusOr<double> loss = (*model)->ForwardBackward(batch, TestLoss);
  EXPECT_OK(loss.status());
  outcome.activation_bytes = TensorMemory::peak_bytes() - before;
  if (loss.ok()) outcome.loss = *loss;
  EXPECT_OK((*model)->ReduceGradients());
  for (const UnitShard& shard : (*model)->shards()) {
    outcome.gradients.push_back(shard.grad.clone());
  }
  return outcome;
}

class ActivationCheckpointingOf
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool>> {};

TEST_P(ActivationCheckpointingOf, KeepsLessAndGivesTheSameBits) {
  const auto [dtype, qk_norm] = GetParam();
  const model::ModelSpec spec = Spec(qk_norm);
  using Mode = ActivationCheckpointing;

  const Outcome none = TrainOnce(spec, dtype, Mode::kNone, 1);
  const Outcome selective = TrainOnce(spec, dtype, Mode::kSelective, 1);
  const Outcome every_second = TrainOnce(spec, dtype, Mode::kFull, 2);
  const Outcome full = TrainOnce(spec, dtype, Mode::kFull, 1);
  const Outcome selective_second = TrainOnce(spec, dtype, Mode::kSelective, 2);

  ASSERT_FALSE(none.gradients.empty());
  EXPECT_GT(none.gradients[1].abs().max().item<float>(), 0.0f);
  for (const Outcome* other : {&selective, &every_second, &full, &selective_second}) {
    EXPECT_EQ(other->loss, none.loss);
    ASSERT_EQ(other->gradients.size(), none.gradients.size());
    for (size_t u = 0; u < none.gradients.size(); ++u) {
      EXPECT_TRUE(other->gradients[u].equal(none.gradients[u])) << "unit " << u;
    }
  }
  EXPECT_LE(2 * full.activation_bytes, none.activation_bytes);
  EXPECT_LT(full.activation_bytes, every_second.activation_bytes);
  EXPECT_LT(every_second.activation_bytes, none.activation_bytes);
  EXPECT_LT(full.activation_bytes, selective.activation_bytes);
  // At the peak, in the last block's backward, all other blocks lack the inputs of products and of
  // attention: both norms' results, q, k, and SwiGLU's.
  const int64_t element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t dropped =
      (2 * spec.hidden_size +
       (spec.layers.front().attention.num_heads + spec.layers.front().attention.num_kv_heads) * 16 +
       spec.layers.front().feed_forward.intermediate_size) *
      kTokens * element;
  EXPECT_EQ(none.activation_bytes - selective.activation_bytes, (spec.num_layers() - 1) * dropped);
  EXPECT_EQ(none.activation_bytes - selective_second.activation_bytes, 3 * dropped);
}

INSTANTIATE_TEST_SUITE_P(Types, ActivationCheckpointingOf,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Bool()));

void ExpectTheSameBitsAndLess(const model::ModelSpec& spec) {
  using Mode = ActivationCheckpointing;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Outcome none = TrainOnce(spec, dtype, Mode::kNone, 1);
    const Outcome selective = TrainOnce(spec, dtype, Mode::kSelective, 1);
    const Outcome full = TrainOnce(spec, dtype, Mode::kFull, 1);
    for (const Outcome* other : {&selective, &full}) {
      EXPECT_EQ(other->loss, none.loss);
      ASSERT_EQ(other->gradients.size(), none.gradients.size());
      for (size_t u = 0; u < none.gradients.size(); ++u) {
        EXPECT_TRUE(other->gradients[u].equal(none.gradients[u])) << "unit " << u;
      }
    }
    EXPECT_LT(full.activation_bytes, selective.activation_bytes);
    EXPECT_LT(selective.activation_bytes, none.activation_bytes);
  }
}

TEST(ActivationCheckpointing, GivesTheSameBitsWithAnyNormsAndActivations) {
  model::ModelSpec spec = Spec(/*qk_norm=*/false);
  tandem::testing::VaryLayers(spec);
  ExpectTheSameBitsAndLess(spec);
}

TEST(ActivationCheckpointing, GivesTheSameBitsWhereLayersReadMoreThanTheStream) {
  for (const bool qk_norm : {false, true}) {
    model::ModelSpec spec = Spec(qk_norm);
    tandem::testing::ShareLayers(spec);
    ExpectTheSameBitsAndLess(spec);
  }
}

TEST(ActivationCheckpointing, GivesTheSameBitsWithExperts) {
  model::ModelSpec spec = Spec(/*qk_norm=*/true);
  constexpr int64_t kTopK = 3;
  const model::ExpertSpec experts = {.num_experts = 8,
                                     .intermediate_size = 24,
                                     .routing = {.top_k = kTopK, .normalize = true},
                                     .shared_intermediate_size = 40};
  for (model::LayerSpec& layer : spec.layers) layer.experts = experts;
  using Mode = ActivationCheckpointing;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Outcome none = TrainOnce(spec, dtype, Mode::kNone, 1);
    const Outcome selective = TrainOnce(spec, dtype, Mode::kSelective, 1);
    const Outcome full = TrainOnce(spec, dtype, Mode::kFull, 1);
    for (const Outcome* other : {&selective, &full}) {
      EXPECT_EQ(other->loss, none.loss);
      ASSERT_EQ(other->gradients.size(), none.gradients.size());
      for (size_t u = 0; u < none.gradients.size(); ++u) {
        EXPECT_TRUE(other->gradients[u].equal(none.gradients[u])) << "unit " << u;
      }
    }
    // Besides what a dense layer drops: the rows by expert, and both SwiGLUs' results. The token of
    // each row is kept, to make the rows again.
    const int64_t dropped =
        (2 * spec.hidden_size +
         (spec.layers.front().attention.num_heads + spec.layers.front().attention.num_kv_heads) *
             16 +
         kTopK * (spec.hidden_size + experts.intermediate_size) +
         experts.shared_intermediate_size) *
            kTokens * static_cast<int64_t>(c10::elementSize(dtype)) -
        kTopK * kTokens * static_cast<int64_t>(sizeof(int64_t));
    // Nearly: the peaks need not be at the same operation of the last block's backward.
    const auto expected = static_cast<double>((spec.num_layers() - 1) * dropped);
    EXPECT_NEAR(static_cast<double>(none.activation_bytes - selective.activation_bytes), expected,
                0.01 * expected);
    EXPECT_LT(full.activation_bytes, selective.activation_bytes);
  }
}

TEST(ActivationCheckpointing, GivesTheSameBitsOnSeveralRanks) {
  const model::ModelSpec spec = SmallSpec();
  const std::vector<TokenSequence> sequences = RandomSequences(7, 9, spec.vocab_size, 4);
  testing::LocalWorld world(3);
  world.Run([&](comm::ProcessGroup& group) {
    const comm::DeviceMesh mesh(group);
    std::vector<std::vector<at::Tensor>> gradients;
    for (const auto mode : {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective,
                            ActivationCheckpointing::kFull}) {
      ShardedModelOptions options;
      options.spec = spec;
      options.mesh = &mesh;
      options.activation_checkpointing = mode;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      SetParameters(*model, 2);
      for (const PackedBatch& batch : Deal(sequences, mesh.rank(), 3, 2, 2)) {
        ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
      }
      ASSERT_OK(model->ReduceGradients());
      gradients.emplace_back();
      for (const UnitShard& shard : model->shards()) gradients.back().push_back(shard.grad.clone());
    }
    for (size_t u = 0; u < gradients[0].size(); ++u) {
      EXPECT_TRUE(gradients[1][u].equal(gradients[0][u])) << "unit " << u;
      EXPECT_TRUE(gradients[2][u].equal(gradients[0][u])) << "unit " << u;
    }
  });
}

TEST(ActivationCheckpointing, RefusesAnIntervalOfNoBlocks) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.mesh = &mesh;
  options.activation_checkpointing_interval = 0;
  EXPECT_THAT(
      ShardedModel::Create(options).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("activation_checkpointing_interval")));
}

}  // namespace
}  // namespace tandem::trainer
