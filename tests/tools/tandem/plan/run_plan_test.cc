#include "tools/tandem/plan/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/config/load.h"
#include "common/model/hidden_matrices.h"
#include "nlohmann/json.hpp"
#include "tests/support/status_matchers.h"
#include "tools/tandem/plan/model_shape.h"
#include "tools/tandem/plan/plan_report.h"
#include "tools/tandem/plan/step_cost.h"

namespace tandem::plan {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

PlanRequest Request(const std::string& model, const std::string& hardware,
                    std::vector<std::string> overrides) {
  PlanRequest request;
  request.config =
      *config::LoadRunConfig({}, overrides, &request.places, config::Support::kAnyBuild);
  request.spec = *FindModelShape(model);
  request.hardware = *ParseHardware(hardware);
  request.this_build = false;
  return request;
}

TEST(RunPlan, OfAutoHasPlainValuesAndSaysWhy) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun(Request("qwen2.5-14b", "h100x8x4",
                      {"trainer.mesh=auto", "trainer.ranks=16", "rollout.replicas=8",
                       "rollout.tensor_model_parallel_size=2", "data.train_batch_size=512"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->fits()) << plan->problem;
  EXPECT_EQ(plan->config.trainer().mesh(), "");
  EXPECT_EQ(plan->mesh.size(), 16);
  EXPECT_LE(plan->rank.peak.total(), plan->budget.rank_bytes);
  EXPECT_THAT(plan->reasons.back(), HasSubstr("Chosen: "));
  // The chosen values, stated, are the same plan.
  PlanRequest again = Request("qwen2.5-14b", "h100x8x4", {});
  again.config = plan->config;
  const absl::StatusOr<RunPlan> stated = PlanRun(again);
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(stated->rank.peak.total(), plan->rank.peak.total());
}

TEST(RunPlan, OfFrozenParametersNeedsLessAndRefusesNamesThatNoTensorHas) {
  const std::vector<std::string> settings = {"trainer.ranks=8", "rollout.replicas=8"};
  const absl::StatusOr<RunPlan> all = PlanRun(Request("qwen2.5-7b", "h100x8x2", settings));
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> frozen = settings;
  frozen.push_back("trainer.frozen_parameters=[model.embed_tokens.weight, '*norm.weight']");
  const absl::StatusOr<RunPlan> rest = PlanRun(Request("qwen2.5-7b", "h100x8x2", frozen));
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_LT(rest->rank.resident, all->rank.resident);

  std::vector<std::string> misspelt = settings;
  misspelt.push_back("trainer.frozen_parameters=[model.embed.weight]");
  EXPECT_THAT(PlanRun(Request("qwen2.5-7b", "h100x8x2", misspelt)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("trainer.frozen_parameters"),
                             HasSubstr("'model.embed.weight' matches no tensor"))));
}

TEST(RunPlan, KeepsWhatIsStated) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun(Request("qwen2.5-7b", "h100x8x2",
                      {"trainer.mesh=auto", "trainer.ranks=8", "rollout.replicas=8",
                       "trainer.activation_checkpointing=full", "trainer.mesh_shape=[2, 4]",
                       "trainer.mesh_dim_names=[dp_shard, tp]"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->mesh.tp, 4);
  EXPECT_EQ(plan->config.trainer().activation_checkpointing(),
            config::v1::ACTIVATION_CHECKPOINTING_FULL);
}

TEST(RunPlan, OffloadsWhereNothingElseFitsAndSaysWhatWouldHoldAModelThatIsTooLarge) {
  const absl::StatusOr<RunPlan> offloaded =
      PlanRun(Request("llama-3.1-70b", "h100x8",
                      {"trainer.mesh=auto", "trainer.ranks=8", "rollout.replicas=1",
                       "rollout.tensor_model_parallel_size=8", "rollout.kv_cache_megabytes=4096"}));
  ASSERT_TRUE(offloaded.ok()) << offloaded.status();
  ASSERT_TRUE(offloaded->fits()) << offloaded->problem;
  EXPECT_EQ(offloaded->config.trainer().offload(), config::v1::OFFLOAD_CPU);
  EXPECT_GT(offloaded->rank.host_bytes, 0);

  const absl::StatusOr<RunPlan> huge =
      PlanRun(Request("llama-3.1-405b", "cpu:24gib:2x1",
                      {"trainer.mesh=auto", "trainer.ranks=2", "rollout.replicas=1",
                       "rollout.kv_cache_megabytes=512"}));
  ASSERT_TRUE(huge.ok()) << huge.status();
  EXPECT_FALSE(huge->fits());
  EXPECT_THAT(huge->problem, HasSubstr("rollout.tensor_model_parallel_size"));
}

TEST(RunPlan, NamesTheKeyOfAMeshThatDoesNotFit) {
  EXPECT_THAT(PlanRun(Request("qwen2.5-7b", "h100x8",
                              {"trainer.ranks=8", "trainer.mesh_shape=[3]",
                               "trainer.mesh_dim_names=[dp_shard]"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--set trainer.mesh_shape=[3]"), HasSubstr("(8)"))));
  EXPECT_THAT(PlanRun(Request("qwen2.5-7b", "h100x8",
                              {"trainer.ranks=8", "trainer.mesh_shape=[1, 8]",
                               "trainer.mesh_dim_names=[dp_shard, tp]"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("trainer.mesh_shape"), HasSubstr("4 key-value heads"))));
  EXPECT_THAT(PlanRun(Request(
                  "qwen2.5-7b", "h100x8",
                  {"trainer.ranks=6", "trainer.mesh_shape=[6]", "trainer.mesh_dim_names=[dp_shard]",
                   "trainer.ulysses_sequence_parallel_size=3"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("trainer.ulysses_sequence_parallel_size"),
                             HasSubstr("28 query heads"))));
  EXPECT_THAT(PlanRun(Request("qwen2.5-7b", "h100x8",
                              {"trainer.ranks=8", "trainer.mesh_shape=[2, 4]",
                               "trainer.mesh_dim_names=[tp, dp_shard]"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in this order")));
}

TEST(RunPlan, NamesTheMemoryOfAProcessWhereNoneIsLeftForTensors) {
  const absl::StatusOr<RunPlan> crowded =
      PlanRun(Request("qwen2.5-0.5b", "cpu:16gib:64x1",
                      {"trainer.ranks=64", "rollout.replicas=1", "trainer.mesh_shape=[64]",
                       "trainer.mesh_dim_names=[dp_shard]"}));
  ASSERT_TRUE(crowded.ok()) << crowded.status();
  EXPECT_THAT(crowded->problem,
              AllOf(HasSubstr("trainer.ranks: a trainer rank needs 512.0 MiB for its process"),
                    HasSubstr("64 trainer ranks and 1 rollout rank share 16.0 GiB"),
                    HasSubstr("use fewer ranks"), Not(HasSubstr("more ranks")),
                    Not(HasSubstr(" 0.0 MiB"))));

  const absl::StatusOr<RunPlan> stated = PlanRun(
      Request("qwen2.5-0.5b", "cpu:64gib:1x1", {"trainer.ranks=1", "trainer.memory_megabytes=10"}));
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_THAT(stated->problem,
              HasSubstr("trainer.memory_megabytes: a trainer rank needs more than 10.0 MiB: its "
                        "process takes 512.0 MiB before any tensor"));
}

TEST(RunPlan, CountsTheLargestOfUnequalParts) {
  const auto resident = [](int tp) {
    const std::string ranks = std::to_string(tp);
    const absl::StatusOr<RunPlan> plan =
        PlanRun(Request("qwen2.5-7b", "h100x8",
                        {"trainer.ranks=" + ranks, "trainer.mesh_shape=[1, " + ranks + "]",
                         "trainer.mesh_dim_names=[dp_shard, tp]"}));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->rank.resident : 0;
  };
  // Of 4 key-value heads one rank in three has two.
  EXPECT_LT(resident(3), resident(2));
  EXPECT_GT(resident(3), resident(4));
}

TEST(RunPlan, RefusesARolloutThatCannotHoldTheModel) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun(Request("qwen2.5-72b", "h100x8x4", {"trainer.ranks=16", "rollout.replicas=4"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->fits());
  EXPECT_THAT(plan->problem,
              AllOf(HasSubstr("rollout.tensor_model_parallel_size"), HasSubstr("75.6 GiB")));
}

TEST(RunPlan, RefusesWhatLinearAttentionDoesNotTake) {
  constexpr const char* kModel = "qwen3-next-80b-a3b";
  constexpr const char* kCpus = "cpu:512gib:8x2";
  EXPECT_EQ(FindModelShape(kModel)->num_parameters() / 1000000000, 79);
  const absl::StatusOr<RunPlan> plan = PlanRun(
      Request(kModel, kCpus,
              {"trainer.ranks=8", "trainer.mesh_shape=[4, 2]", "trainer.mesh_dim_names=[ep, tp]",
               "rollout.tensor_model_parallel_size=2", "rollout.max_num_seqs=16"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 36 layers of 32 matrices, halved.
  EXPECT_NEAR(static_cast<double>(plan->rollout.states), 16 * 36 * 32 / 2 * 128 * 128 * 4, 2e7);

  const auto refusal = [&](const char* hardware, std::vector<std::string> settings) {
    return PlanRun(Request(kModel, hardware, std::move(settings))).status();
  };
  EXPECT_THAT(refusal(kCpus, {"trainer.ranks=2", "trainer.ulysses_sequence_parallel_size=2"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--set trainer.ulysses_sequence_parallel_size=2"),
                             HasSubstr("linear attention"))));
  EXPECT_THAT(refusal(kCpus, {"rollout.tensor_model_parallel_size=32"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--set rollout.tensor_model_parallel_size=32"),
                             HasSubstr("key heads of linear attention"))));
}

TEST(RunPlan, CountsNoMoreOfAWindowedLayerThanItsWindow) {
  const std::vector<std::string> settings = {
      "trainer.ranks=1", "data.max_prompt_length=4096", "rollout.max_tokens=4096",
      "rollout.max_num_batched_tokens=2048", "rollout.kv_cache_megabytes=4096"};
  PlanRequest request = Request("qwen2.5-0.5b", "cpu:160gib:2x1", settings);
  const absl::StatusOr<RunPlan> full = PlanRun(request);
  ASSERT_TRUE(full.ok()) << full.status();
  for (model::LayerSpec& layer : request.spec.layers) layer.attention.window = 1024;
  const absl::StatusOr<RunPlan> windowed = PlanRun(request);
  ASSERT_TRUE(windowed.ok()) << windowed.status();

  ASSERT_GT(full->rollout.sequences, 0);
  // 512 blocks of 16 tokens become 65: the window may begin anywhere in its first block.
  ASSERT_EQ(request.config.rollout().block_size(), 16);
  EXPECT_GE(windowed->rollout.sequences, full->rollout.sequences * 512 / 65);
  EXPECT_LT(windowed->rollout.sequences, (full->rollout.sequences + 1) * 512 / 65);
  EXPECT_EQ(TrainingFlopsPerToken(request.spec, 1024), TrainingFlopsPerToken(full->spec, 1024));
  EXPECT_LT(TrainingFlopsPerToken(request.spec, 8192), TrainingFlopsPerToken(full->spec, 8192));

  // A GPU masks what the window hides, and keeps it.
  PlanRequest on_gpu = Request("qwen2.5-0.5b", "h100x2", settings);
  const absl::StatusOr<RunPlan> whole = PlanRun(on_gpu);
  ASSERT_TRUE(whole.ok()) << whole.status();
  on_gpu.spec = request.spec;
  const absl::StatusOr<RunPlan> masked = PlanRun(on_gpu);
  ASSERT_TRUE(masked.ok()) << masked.status();
  EXPECT_EQ(masked->rollout.sequences, whole->rollout.sequences);
}

TEST(RunPlan, SharesAcceleratorsWhereThereAreTooFew) {
  const std::vector<std::string> own = {"trainer.ranks=4", "rollout.replicas=4"};
  const std::vector<std::string> shared = {"trainer.ranks=8", "rollout.replicas=8"};
  const absl::StatusOr<RunPlan> apart = PlanRun(Request("qwen2.5-1.5b", "h100x8", own));
  const absl::StatusOr<RunPlan> together = PlanRun(Request("qwen2.5-1.5b", "h100x8", shared));
  ASSERT_TRUE(apart.ok() && together.ok());
  EXPECT_FALSE(apart->budget.shared);
  EXPECT_TRUE(together->budget.shared);
  EXPECT_LT(together->budget.rank_bytes, apart->budget.rank_bytes - together->rollout.total());
}

TEST(RunPlan, CountsMuonsStateAndExchange) {
  const auto plan = [](const char* optimizer, const char* ranks) {
    return *PlanRun(Request("qwen2.5-0.5b", "h100x4",
                            {"model.dtype=bfloat16", "trainer.ranks=" + std::string(ranks),
                             "actor.optim.name=" + std::string(optimizer)}));
  };
  const RunPlan adamw = plan("adamw", "1"), muon = plan("muon", "1");
  const model::ParameterTable table(adamw.spec);
  int64_t in_matrices = 0;
  for (size_t u = 0; u < table.units().size(); ++u) {
    for (const model::HiddenMatrix& m : model::HiddenMatricesOf(table, static_cast<int>(u))) {
      in_matrices += m.numel();
    }
  }
  EXPECT_GT(in_matrices, adamw.spec.num_parameters() / 2);
  EXPECT_EQ(adamw.rank.resident - muon.rank.resident, 4 * in_matrices);
  EXPECT_LT(plan("muon", "2").rank.resident, plan("adamw", "2").rank.resident);
}

TEST(RunPlan, AnUnstatedKvCacheTakesAShareOfAGpuAndAFixedSizeOnACpu) {
  const absl::StatusOr<RunPlan> gpu =
      PlanRun(Request("qwen2.5-7b", "h100x8", {"trainer.ranks=4", "rollout.replicas=4"}));
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const RolloutMemory& memory = gpu->rollout;
  EXPECT_EQ(memory.kv_cache, (gpu->budget.rollout_bytes - (memory.total() - memory.kv_cache)) / 2);
  const absl::StatusOr<RunPlan> cpu =
      PlanRun(Request("qwen2.5-0.5b", "cpu:64gib:1x1", {"trainer.ranks=1"}));
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ(cpu->rollout.kv_cache, int64_t{512} << 20);
}

TEST(RunPlan, CountsTheModelsBesideThePolicy) {
  const auto plan = [](const std::string& setting, bool by_preference = false) {
    std::vector<std::string> overrides = {"trainer.ranks=1", "model.dtype=bfloat16"};
    if (!setting.empty()) overrides.push_back(setting);
    PlanRequest request = Request("qwen2.5-0.5b", "h100x2", overrides);
    request.by_preference = by_preference;
    return *PlanRun(request);
  };
  const RunPlan alone = plan("");
  // A reference: float32 masters and shards in bfloat16. A critic: gradients and two moments
  // besides.
  const int64_t reference = 6 * alone.spec.num_parameters();
  const int64_t critic = 18 * model::ValueModelSpec(alone.spec).num_parameters();
  const auto expect_more = [&alone](const RunPlan& with, MemoryKind kind, int64_t bytes) {
    EXPECT_EQ(with.rank.resident - alone.rank.resident, bytes);
    EXPECT_GE(with.rank.peak.total() - alone.rank.peak.total(), bytes);
    EXPECT_EQ(alone.rank.peak.of(kind), 0);
    EXPECT_GE(with.rank.peak.of(kind), bytes);
  };
  expect_more(plan("actor.use_kl_loss=true"), MemoryKind::kReference, reference);
  expect_more(plan("algorithm.use_kl_in_reward=true"), MemoryKind::kReference, reference);
  expect_more(plan("", /*by_preference=*/true), MemoryKind::kReference, reference);
  expect_more(plan("algorithm.adv_estimator=gae"), MemoryKind::kCritic, critic);
}

TEST(RunPlan, CountsACriticOfAnotherShape) {
  PlanRequest request =
      Request("qwen2.5-0.5b", "h100x2",
              {"trainer.ranks=1", "model.dtype=bfloat16", "algorithm.adv_estimator=gae"});
  const absl::StatusOr<RunPlan> same = PlanRun(request);
  ASSERT_TRUE(same.ok()) << same.status();
  request.critic_spec = *FindModelShape("qwen2.5-1.5b");
  const absl::StatusOr<RunPlan> larger = PlanRun(request);
  ASSERT_TRUE(larger.ok()) << larger.status();
  EXPECT_EQ(larger->rank.resident - same->rank.resident,
            18 * (model::ValueModelSpec(*request.critic_spec).num_parameters() -
                  model::ValueModelSpec(request.spec).num_parameters()));
}

TEST(RunPlan, CountsTheBatch) {
  const absl::StatusOr<RunPlan> plan = PlanRun(
      Request("qwen2.5-0.5b", "h100x8",
              {"trainer.ranks=4", "rollout.replicas=4", "data.train_batch_size=64", "rollout.n=8",
               "actor.ppo_mini_batch_size=16", "actor.ppo_epochs=2", "data.max_prompt_length=257",
               "rollout.max_tokens=256", "trainer.max_tokens_per_micro_batch=2048"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->batch.samples, 512);
  EXPECT_EQ(plan->batch.mini_batch_samples, 128);
  EXPECT_EQ(plan->batch.optimizer_steps, 8);
  EXPECT_EQ(plan->batch.samples_per_rank, 32);
  EXPECT_EQ(plan->batch.micro_batch_samples, 4);  // of 512 tokens
  EXPECT_EQ(plan->batch.micro_batches, 8);
}

TEST(PlanReport, SaysTheSameInTextAndJson) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun(Request("qwen2.5-0.5b", "h100x2", {"trainer.ranks=1"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string text = DescribePlan(*plan);
  EXPECT_THAT(text, AllOf(HasSubstr("activations"), HasSubstr("###"), HasSubstr("fits"),
                          Not(HasSubstr("DOES NOT FIT"))));
  const nlohmann::json json = PlanToJson(*plan);
  int64_t sum = 0;
  for (const auto& [kind, bytes] : json["rank_memory"]["kinds"].items()) {
    sum += bytes.get<int64_t>();
  }
  EXPECT_EQ(sum, json["rank_memory"]["peak_tensor_bytes"]);
  EXPECT_TRUE(json["fits"]);
}

TEST(PlanReport, CountsOneInTheSingular) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun(Request("qwen2.5-0.5b", "h100x2",
                      {"trainer.ranks=1", "rollout.replicas=1", "data.train_batch_size=1",
                       "rollout.n=1", "rollout.tensor_model_parallel_size=1"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(DescribePlan(*plan),
              AllOf(HasSubstr("1 replica of 1 rank, "), HasSubstr("1 prompt x 1 sample = 1 sample"),
                    HasSubstr("peak of the trainer rank, ")));
}

TEST(PlanReport, DrawsWhatIsNeededWhereNoMemoryIsLeft) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun(Request("llama-3.1-405b", "cpu:24gib:2x1",
                      {"trainer.ranks=2", "rollout.replicas=2", "trainer.mesh_shape=[2]",
                       "trainer.mesh_dim_names=[dp_shard]"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_LE(plan->budget.rank_bytes, 0);

  const std::string text = DescribePlan(*plan);

  EXPECT_THAT(text, HasSubstr("a full bar is " + FormatBytes(plan->rank.peak.total())));
  EXPECT_THAT(text, Not(HasSubstr("is 0.0 MiB")));
}

}  // namespace
}  // namespace tandem::plan
