// Runs of models with experts, as a user starts them: what the routers' settings do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "common/io/safetensors.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;

constexpr int kSteps = 5;

// Many experts in several layers: near ties, which rounding decides.
nlohmann::json ManyExperts() {
  nlohmann::json config = testing::TinyModelConfig("Qwen3MoeForCausalLM");
  config.update({{"num_hidden_layers", 6}, {"num_experts", 48}, {"num_experts_per_tok", 4}});
  return config;
}

// Routers with correction biases.
nlohmann::json CorrectedExperts() {
  nlohmann::json config = testing::TinyModelConfig("Qwen3MoeForCausalLM");
  config.update({{"architectures", {"Dots1ForCausalLM"}},
                 {"model_type", "dots1"},
                 {"n_routed_experts", 6},
                 {"first_k_dense_replace", 1},
                 {"n_group", 1},
                 {"topk_group", 1}});
  return config;
}

ProgramResult RunTandem(const TempFolder& folder, const std::string& command,
                        const std::string& name, const nlohmann::json& config,
                        const std::vector<std::string>& sets) {
  std::vector<std::string> args = TinyRun(folder, command);
  folder.Write("model/config.json", config.dump());
  std::vector<std::string> all = {"run_dir=" + (folder / name),
                                  "trainer.total_steps=" + std::to_string(kSteps),
                                  "trainer.test_freq=0",
                                  "rollout.max_tokens=24",
                                  "actor.entropy_coeff=0.05",  // a gradient in every step
                                  "seed=11"};
  all.insert(all.end(), sets.begin(), sets.end());
  for (const std::string& set : all) args.insert(args.end(), {"--set", set});
  return RunProgram("tandem", args);
}

std::vector<nlohmann::json> Metrics(const TempFolder& folder, const std::string& name) {
  std::vector<nlohmann::json> steps = JsonLines(ReadWhole(folder / name + "/metrics.jsonl"));
  std::erase_if(steps,
                [](const nlohmann::json& line) { return line["training/global_step"] == 0; });
  return steps;
}

double Mean(const std::vector<nlohmann::json>& steps, const std::string& key) {
  double sum = 0;
  for (const nlohmann::json& step : steps) sum += step[key].get<double>();
  return sum / static_cast<double>(steps.size());
}

// With two ranks a rollout adds up in another order than the trainer.
TEST(RouterReplayRun, BringsTheTrainersProbabilitiesNearerToTheRollouts) {
  const TempFolder folder;
  double difference[2];
  double largest[2];
  for (const bool replays : {false, true}) {
    const std::string name = replays ? "replayed" : "free";
    const ProgramResult result =
        RunTandem(folder, "train", name, ManyExperts(),
                  {"model.dtype=bfloat16", "rollout.tensor_model_parallel_size=2",
                   std::string("actor.router_replay=") + (replays ? "r3" : "disabled")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<nlohmann::json> steps = Metrics(folder, name);
    ASSERT_EQ(steps.size(), kSteps);
    difference[replays] = Mean(steps, "training/rollout_probs_diff_mean");
    largest[replays] = Mean(steps, "training/rollout_probs_diff_max");
    for (const nlohmann::json& step : steps) EXPECT_GT(step["actor/grad_norm"], 0.0);
  }
  EXPECT_GT(difference[0], 0.0);
  EXPECT_LE(difference[1], difference[0]);
  EXPECT_LE(largest[1], largest[0]);
}

TEST(RouterReplayRun, TrainsOnEpisodesOfSeveralTurns) {
  const TempFolder folder;
  const ProgramResult result =
      RunTandem(folder, "train", "turns", ManyExperts(),
                {"actor.router_replay=r3", "environment.name=calculator", "environment.max_turns=3",
                 "rollout.max_tokens=6", "environment.max_tokens=24"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Metrics(folder, "turns").size(), kSteps);
}

TEST(RouterReplayRun, NeedsExpertsAndSampledTokens) {
  const TempFolder folder;
  ProgramResult result =
      RunTandem(folder, "train", "dense", testing::TinyModelConfig(), {"actor.router_replay=r3"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("actor.router_replay: the model has no layer with experts"));
  result = RunTandem(folder, "replay", "recorded", ManyExperts(), {"actor.router_replay=r3"});
  EXPECT_NE(result.exit_code, 0);
}

// The bias of the exported model, all layers.
std::vector<float> Biases(const TempFolder& folder, const std::string& name) {
  std::vector<float> out;
  const auto model = io::ModelFolder::Open(folder / name + "/model");
  EXPECT_OK(model.status());
  for (const std::string& tensor : model->names()) {
    if (tensor.find("e_score_correction_bias") == std::string::npos) continue;
    const auto view = model->Find(tensor);
    const size_t begin = out.size();
    out.resize(begin + view->bytes.size() / sizeof(float));
    std::memcpy(out.data() + begin, view->bytes.data(), view->bytes.size());
  }
  return out;
}

TEST(RouterBiasRun, BiasesMoveAndAreExported) {
  const TempFolder folder;
  ProgramResult result = RunTandem(folder, "train", "moved", CorrectedExperts(),
                                   {"actor.router_bias_update_rate=0.25"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<float> moved = Biases(folder, "moved");
  ASSERT_EQ(moved.size(), 6u);  // of the second layer
  double largest = 0;
  for (const float bias : moved) {
    largest = std::max(largest, std::fabs(static_cast<double>(bias)));
    EXPECT_EQ(bias * 4, std::round(bias * 4)) << bias;  // whole steps from 0
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(largest, 0.25 * kSteps);

  result = RunTandem(folder, "train", "fixed", CorrectedExperts(), {});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Biases(folder, "fixed"), std::vector<float>(6, 0.0f));
}

TEST(RouterLossRun, IsPartOfTheLossAndReported) {
  const TempFolder folder;
  const ProgramResult result =
      RunTandem(folder, "train", "balanced", ManyExperts(),
                {"actor.router_aux_loss_coef=0.5", "actor.router_z_loss_coef=0.25"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const nlohmann::json& step : Metrics(folder, "balanced")) {
    EXPECT_GE(step["actor/router_aux_loss"], 3.9);  // 4 if all experts have the same load
    EXPECT_GT(step["actor/router_z_loss"], 0.0);
    const double of_routers = 0.5 * step["actor/router_aux_loss"].get<double>() +
                              0.25 * step["actor/router_z_loss"].get<double>();
    const double of_policy =
        step["actor/pg_loss"].get<double>() - 0.05 * step["actor/entropy"].get<double>();
    EXPECT_NEAR(step["actor/loss"].get<double>(), of_policy + of_routers, 1e-4);
  }
}

}  // namespace
}  // namespace tandem
