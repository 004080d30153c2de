#include "tools/tandem/plan/rank_memory.h"

#include <gtest/gtest.h>

#include "common/model/images/pixel_cache.h"
#include "tools/tandem/plan/batch_plan.h"
#include "tools/tandem/plan/model_shape.h"

namespace tandem::plan {
namespace {

model::ModelSpec Spec() {
  model::ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 512;
  spec.hidden_size = 64;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 128;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 16;
  spec.layers.assign(4, layer);
  return spec;
}

RankMemory Predict(const setup::RankSetup& setup, int64_t sequences = 4, int64_t length = 256) {
  return PredictRankMemory(Spec(), setup,
                           SupervisedWorkload(sequences, length, sequences * length));
}

TEST(MemoryLedger, RemembersTheLargestSumAndWhatItWas) {
  MemoryLedger ledger;
  {
    ledger.SetPlace("first");
    const Size a = ledger.Take(MemoryKind::kParameters, 100);
    Size b = ledger.Take(MemoryKind::kHead, 30);
    const Size shared = b;
    b.reset();
    EXPECT_EQ(ledger.now().total(), 130);
  }
  EXPECT_EQ(ledger.now().total(), 0);
  ledger.SetPlace("second");
  const Size c = ledger.Take(MemoryKind::kActivations, 120);
  EXPECT_EQ(ledger.peak().total(), 130);
  EXPECT_EQ(ledger.peak().of(MemoryKind::kHead), 30);
  EXPECT_EQ(ledger.peak().place, "first");
}

TEST(RankMemory, OfFrozenParametersIsTheirShardsInComputeDtype) {
  const model::ModelSpec spec = Spec();
  const int64_t frozen = spec.vocab_size * spec.hidden_size;
  for (const int64_t element_bytes : {4, 2}) {
    setup::RankSetup setup;
    setup.element_bytes = element_bytes;
    const RankMemory all = Predict(setup);
    setup.unit_limits.frozen_parameters = {"model.embed_tokens.weight"};
    const RankMemory rest = Predict(setup);
    // No gradient, no moments, and no master beside a shard in another type.
    const int64_t master = element_bytes == 4 ? 0 : 4;
    EXPECT_EQ(all.resident - rest.resident, frozen * (3 * 4 + master));
    EXPECT_LE(rest.peak.total(), all.peak.total() - frozen * (3 * 4 + master));
  }
}

TEST(RankMemory, OfTheCriticDoesNotDependOnWhatThePolicyFreezes) {
  setup::RankSetup setup;
  const int64_t policy = Predict(setup).resident;
  setup.has_critic = true;
  const int64_t critic = Predict(setup).resident - policy;
  setup.unit_limits.frozen_parameters = {"*norm.weight"};
  const int64_t both = Predict(setup).resident;
  setup.has_critic = false;
  EXPECT_EQ(both - Predict(setup).resident, critic);
}

TEST(RankMemory, OfTheStateFallsAsOneOverTheRanks) {
  const int64_t parameters = Spec().num_parameters();
  for (const int ranks : {1, 2, 4, 8}) {
    setup::RankSetup setup;
    setup.element_bytes = 4;
    setup.mesh.dp_shard = ranks;
    const RankMemory memory = Predict(setup);
    // Masters, gradients and two moments; units are padded by less than a rank's worth.
    EXPECT_GE(memory.resident, 16 * parameters / ranks);
    EXPECT_LE(memory.resident, 16 * (parameters / ranks + 6));
  }
}

TEST(RankMemory, CountsABfloat16ShardBesideTheMaster) {
  setup::RankSetup setup;
  setup.element_bytes = 2;
  EXPECT_EQ(Predict(setup).resident, 18 * Spec().num_parameters());
}

TEST(RankMemory, OfCheckpointedActivationsIsLessThanHalf) {
  setup::RankSetup setup;
  setup.mesh.dp_shard = 2;
  const int64_t all = Predict(setup, 1, 2048).peak.of(MemoryKind::kActivations);
  setup.checkpointing = config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE;
  const int64_t selective = Predict(setup, 1, 2048).peak.of(MemoryKind::kActivations);
  setup.checkpointing = config::v1::ACTIVATION_CHECKPOINTING_FULL;
  const int64_t full = Predict(setup, 1, 2048).peak.of(MemoryKind::kActivations);
  EXPECT_LT(selective, all);
  EXPECT_LT(full, selective);
  EXPECT_LT(2 * full, all);
}

TEST(RankMemory, GrowsWithPrefetchAndWithUnitsThatAreKept) {
  setup::RankSetup setup;
  setup.mesh.dp_shard = 2;
  setup.prefetch_units = 0;
  const int64_t alone = Predict(setup).peak.of(MemoryKind::kGatheredUnits);
  setup.prefetch_units = 2;
  const int64_t ahead = Predict(setup).peak.of(MemoryKind::kGatheredUnits);
  setup.reshard_after_forward = false;
  const int64_t kept = Predict(setup).peak.of(MemoryKind::kGatheredUnits);
  EXPECT_LT(alone, ahead);
  EXPECT_LT(ahead, kept);
  // All units, in bfloat16, and no more: padding apart.
  EXPECT_NEAR(static_cast<double>(kept), 2.0 * static_cast<double>(Spec().num_parameters()), 64);
}

TEST(RankMemory, OfATensorParallelRankIsItsPart) {
  setup::RankSetup setup;
  setup.element_bytes = 4;
  const int64_t whole = Predict(setup).resident;
  setup.mesh.tp = 2;
  // Norms are on both.
  EXPECT_NEAR(static_cast<double>(Predict(setup).resident), static_cast<double>(whole) / 2,
              16.0 * 64 * 9);
}

TEST(RankMemory, HasRoomForMoreRowsThanAnEvenShareOfTheExperts) {
  model::ModelSpec spec = Spec();
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 4, .intermediate_size = 64, .routing = {.top_k = 2}};
  }
  setup::RankSetup setup;
  setup.mesh.dp_shard = 2;
  const auto activations = [&](double expert_load) {
    RankWorkload work = SupervisedWorkload(4, 256, 4 * 256);
    EXPECT_EQ(work.expert_load, kPlannedExpertLoad);
    work.expert_load = expert_load;
    return PredictRankMemory(spec, setup, work).peak.of(MemoryKind::kActivations);
  };
  EXPECT_EQ(activations(kPlannedExpertLoad), activations(1));
  setup.mesh.dp_shard = 1;
  setup.mesh.ep = 2;
  // Each layer keeps, of a row of an expert, its input [64], gate and up [128], their product [64] and
  // two places; float32.
  const int64_t rows = 2 * 256 * 2;  // two experts for each token of a rank's two sequences
  const int64_t more_rows = rows / 4;
  const int64_t kept = static_cast<int64_t>(spec.layers.size()) * more_rows * (256 * 4 + 2 * 8);
  EXPECT_GE(activations(1.25) - activations(1), kept);
  EXPECT_LE(activations(1.25) - activations(1), kept * 3 / 2);
}

TEST(RankMemory, OfSharedSequencesFallsWithTheRanksThatShare) {
  setup::RankSetup setup;
  setup.mesh.dp_shard = 2;
  const int64_t alone = Predict(setup, 1, 2048).peak.of(MemoryKind::kActivations);
  setup.mesh.sequence = 2;
  const int64_t shared = Predict(setup, 1, 2048).peak.of(MemoryKind::kActivations);
  EXPECT_LT(shared, alone * 2 / 3);
}

TEST(RankMemory, OfAnOffloadedStateIsElsewhere) {
  setup::RankSetup setup;
  setup.element_bytes = 4;
  setup.mesh.dp_shard = 2;
  const int64_t here = Predict(setup).resident;
  setup.offload = config::v1::OFFLOAD_CPU;
  const RankMemory memory = Predict(setup);
  EXPECT_EQ(memory.resident, 0);
  EXPECT_EQ(memory.host_bytes, here);
}

TEST(RankMemory, CountsReferenceAndCritic) {
  setup::RankSetup setup;
  const int64_t policy = Predict(setup).peak.total();
  setup.has_reference = true;
  EXPECT_GE(Predict(setup).peak.of(MemoryKind::kReference), 6 * Spec().num_parameters());
  setup.has_critic = true;
  EXPECT_GT(Predict(setup).peak.total(), policy + 6 * Spec().num_parameters());
  EXPECT_GT(Predict(setup).peak.of(MemoryKind::kCritic), 0);
}

TEST(RankMemory, OfAReferenceIsItsParametersAndOfACriticItsTrainingState) {
  setup::RankSetup setup;
  setup.element_bytes = 2;
  const int64_t policy = Predict(setup).resident;
  setup.has_reference = true;
  const int64_t with_reference = Predict(setup).resident;
  // Float32 masters and the shards in bfloat16.
  EXPECT_EQ(with_reference - policy, 6 * Spec().num_parameters());
  setup.has_critic = true;
  // Gradients and two moments besides; a row and a bias in place of the output projection.
  const int64_t of_critic = model::ValueModelSpec(Spec()).num_parameters();
  EXPECT_EQ(of_critic, Spec().num_parameters() - 511 * 64 + 1);
  EXPECT_EQ(Predict(setup).resident - with_reference, 18 * of_critic);
}

TEST(RankMemory, OfACriticIsThatOfItsOwnShape) {
  setup::RankSetup setup;
  setup.element_bytes = 2;
  const int64_t policy = Predict(setup).resident;
  setup.has_critic = true;
  setup.critic_spec = Spec();
  setup.critic_spec->layers.assign(8, Spec().layers.front());
  EXPECT_EQ(Predict(setup).resident - policy,
            18 * model::ValueModelSpec(*setup.critic_spec).num_parameters());
}

TEST(RankMemory, OfAShardedCriticHasItsUnitsToo) {
  setup::RankSetup setup;
  setup.mesh.dp_shard = 2;
  setup.has_critic = true;
  const RankMemory memory = Predict(setup);
  // Buffers stay for the next of their size, so beside its training state there is at least its
  // embedding, gathered.
  EXPECT_GE(memory.peak.of(MemoryKind::kCritic),
            9 * model::ValueModelSpec(Spec()).num_parameters() + 2 * 512 * 64);
}

model::ModelSpec SpecWithTower() {
  model::ModelSpec spec = Spec();
  model::VisionSpec& tower = spec.vision.emplace();
  tower.patch_size = 4;
  tower.temporal_patch_size = tower.merge_size = 2;
  tower.hidden_size = 32;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 64;
  layer.attention.num_heads = layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 16;
  tower.layers.assign(3, layer);
  return spec;
}

int64_t ActivationsOf(const model::ModelSpec& spec, const setup::RankSetup& setup,
                      int64_t rows_per_prompt) {
  RankWorkload work = SupervisedWorkload(4, 256, 4 * 256);
  work.image_prompts = work.step_image_prompts = 4;
  work.rows_per_prompt = rows_per_prompt;
  return PredictRankMemory(spec, setup, work).peak.of(MemoryKind::kActivations);
}

TEST(RankMemory, OfImagesIsThatOfATowersPass) {
  setup::RankSetup setup;
  setup.element_bytes = 4;
  setup.unit_limits.trains_vision = true;
  const model::ModelSpec spec = SpecWithTower();
  const int64_t few = ActivationsOf(spec, setup, 10);
  const int64_t many = ActivationsOf(spec, setup, 110);
  // Of a patch each layer keeps two norms' inputs and results, the projections of attention and its
  // result, and those of the feed-forward layer.
  const int64_t patches = 4 * 100 * 4;
  EXPECT_GE(many - few, patches * 3 * (4 * 32 + 4 * 32 + 3 * 64) * 4);
  setup.unit_limits.trains_vision = false;
  // What passes is smaller than what the blocks keep.
  EXPECT_LT(ActivationsOf(spec, setup, 110), many);
  EXPECT_EQ(ActivationsOf(Spec(), setup, 110), ActivationsOf(Spec(), setup, 10));
}

TEST(RankMemory, OfImagesThatSeeAheadOnAGpuHasChunksOfScores) {
  setup::RankSetup setup;
  setup.element_bytes = 2;
  model::ModelSpec spec = SpecWithTower();
  const auto added_by_seeing_ahead = [&] {
    spec.vision->images_see_ahead = false;
    const int64_t without = ActivationsOf(spec, setup, 10);
    spec.vision->images_see_ahead = true;
    return ActivationsOf(spec, setup, 10) - without;
  };
  EXPECT_EQ(added_by_seeing_ahead(), 0);
  setup.kernels = setup::Kernels::kPlain;
  // Of 256 tokens all at once, at least their scores and the softmax.
  EXPECT_GT(added_by_seeing_ahead(),
            2 * spec.layers.front().attention.num_heads * 256 * 256 * int64_t{sizeof(float)});
}

TEST(RankMemory, OfPixelsIsInHostMemoryAndBounded) {
  const model::ModelSpec spec = SpecWithTower();
  RankWorkload work = SupervisedWorkload(4, 256, 4 * 256);
  work.image_prompts = work.step_image_prompts = 4;
  work.rows_per_prompt = 10;
  const setup::RankSetup setup;
  // 4 patches a row, of 3 colors, 2 frames and 16 pixels.
  EXPECT_EQ(PredictRankMemory(spec, setup, work).pixel_bytes, 4 * 10 * 4 * 96 * 4);
  work.step_image_prompts = 1 << 20;
  EXPECT_EQ(PredictRankMemory(spec, setup, work).pixel_bytes, model::PixelCache::kDefaultBytes);
  EXPECT_EQ(PredictRankMemory(Spec(), setup, work).pixel_bytes, 0);
}

}  // namespace
}  // namespace tandem::plan
