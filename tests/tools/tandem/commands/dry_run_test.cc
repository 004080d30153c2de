// tandem train --dry-run: plans for machines that are not here, without a model folder or data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Example() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/tools/configs/gsm8k_qwen2_7b_4x8.yaml";
}

ProgramResult DryRun(std::vector<std::string> args) {
  args.insert(args.begin(), {"train", "--dry-run", "--config", Example()});
  return RunProgram("tandem", args);
}

TEST(DryRun, OfTheExampleFitsOnFourNodesOfEight) {
  const ProgramResult result = DryRun({"--hardware", "h100x8x4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("1024 prompts x 5 samples = 5120 samples"),
                                HasSubstr("dp_replicate 2 x dp_shard 8"), HasSubstr("fits")));
}

TEST(DryRun, PlansLargerModelsByThemselves) {
  struct Case {
    const char* model;
    const char* ranks;
    const char* rollouts;
    const char* tensor_ranks;
  };
  for (const Case& c :
       {Case{"qwen2.5-14b", "16", "8", "2"}, Case{"llama-3.1-70b", "24", "1", "8"}}) {
    const ProgramResult result =
        DryRun({"--hardware",
                "h100x8x4",
                "--json",
                "--set",
                "trainer.mesh=auto",
                "--set",
                std::string("model.path=") + c.model,
                "--set",
                std::string("trainer.ranks=") + c.ranks,
                "--set",
                std::string("rollout.replicas=") + c.rollouts,
                "--set",
                std::string("rollout.tensor_model_parallel_size=") + c.tensor_ranks,
                "--set",
                "trainer.mesh_shape=[]",
                "--set",
                "trainer.mesh_dim_names=[]",
                "--set",
                "trainer.sharding_strategy=full_shard",
                "--set",
                "rollout.kv_cache_megabytes=16384"});
    ASSERT_EQ(result.exit_code, 0) << c.model << ": " << result.err;
    const nlohmann::json plan = nlohmann::json::parse(result.out);
    EXPECT_TRUE(plan["fits"]);
    EXPECT_LE(plan["rank_memory"]["peak_tensor_bytes"], plan["rank_memory"]["available_bytes"]);
    EXPECT_GT(plan["rank_memory"]["kinds"]["activations"], 0);
  }
}

TEST(DryRun, ThatDoesNotFitExitsWithOneAndSaysWhy) {
  const ProgramResult result =
      DryRun({"--hardware", "a100x8x4", "--set", "model.path=llama-3.1-405b", "--set",
              "rollout.tensor_model_parallel_size=1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rollout.tensor_model_parallel_size"), HasSubstr("GiB")));
}

TEST(DryRun, AnswersMistakesWithFileAndLine) {
  const ProgramResult hardware = DryRun({"--hardware", "h10x8"});
  EXPECT_EQ(hardware.exit_code, 2);
  EXPECT_THAT(hardware.err, HasSubstr("'h100'"));

  const ProgramResult mesh = DryRun({"--hardware", "h100x8x4", "--set", "trainer.ranks=12"});
  EXPECT_EQ(mesh.exit_code, 2);
  EXPECT_THAT(mesh.err, AllOf(HasSubstr("gsm8k_qwen2_7b_4x8.yaml:"),
                              HasSubstr("trainer.mesh_shape"), HasSubstr("12")));

  const ProgramResult model = DryRun({"--hardware", "h100x8x4", "--set", "model.path=qwen2.5-7c"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, AllOf(HasSubstr("model.path"), HasSubstr("'qwen2.5-7b'")));

  EXPECT_EQ(DryRun({"--hardware", "h100x8x4", "--set", "trainer.mesh=best"}).exit_code, 2);
}

TEST(DryRun, OfPreferencesCountsTheReference) {
  const auto reference_bytes = [](const char* command) {
    const ProgramResult result =
        RunProgram("tandem", {command, "--dry-run", "--config", Example(), "--hardware", "h100x8x4",
                              "--json", "--set", "actor.use_kl_loss=false"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json plan = nlohmann::json::parse(result.out, nullptr, false);
    return plan.is_object() ? plan["rank_memory"]["kinds"]["reference"].get<int64_t>() : -1;
  };
  EXPECT_EQ(reference_bytes("sft"), 0);
  EXPECT_GT(reference_bytes("dpo"), 0);
}

TEST(DryRun, NamesTheCriticsModelWhereItIsUnknown) {
  const ProgramResult result =
      DryRun({"--hardware", "h100x8x4", "--set", "algorithm.adv_estimator=gae", "--set",
              "critic.model.path=qwen2.5-7c"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("critic.model.path"), HasSubstr("'qwen2.5-7b'")));
}

TEST(DryRun, WritesAConfigurationWithPlainValues) {
  const TempFolder folder;
  const ProgramResult result = DryRun({"--hardware", "h100x8x4", "--output",
                                       folder / "resolved.yaml", "--set", "trainer.mesh=auto"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string yaml = testing::ReadWhole(folder / "resolved.yaml");
  EXPECT_THAT(yaml, AllOf(HasSubstr("mesh: \"\""), HasSubstr("mesh_shape: [2, 8]")));
}

}  // namespace
}  // namespace tandem
