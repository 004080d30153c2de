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

// Replays the rollouts of the run `name`, into `name`-replayed.
ProgramResult Replay(const TempFolder& folder, const std::string& name,
                     const std::vector<std::string>& sets) {
  std::vector<std::string> args = TinyRun(folder, "replay");
  args.insert(args.end(), {"--input", folder / name + "/rollouts"});
  folder.Write("model/config.json", ManyExperts().dump());
  std::vector<std::string> all = {"run_dir=" + (folder / name + "-replayed"),
                                  "trainer.total_steps=" + std::to_string(kSteps),
                                  "rollout.max_tokens=24", "actor.entropy_coeff=0.05", "seed=11"};
  all.insert(all.end(), sets.begin(), sets.end());
  for (const std::string& set : all) args.insert(args.end(), {"--set", set});
  return RunProgram("tandem", args);
}

// A recorded run trains as it did when it sampled, in every bit.
void ExpectSameSteps(const TempFolder& folder, const std::string& name) {
  const std::vector<nlohmann::json> trained = Metrics(folder, name);
  const std::vector<nlohmann::json> replayed = Metrics(folder, name + "-replayed");
  ASSERT_EQ(trained.size(), kSteps);
  ASSERT_EQ(replayed.size(), kSteps);
  for (int i = 0; i < kSteps; ++i) {
    for (const char* key : {"actor/loss", "actor/grad_norm", "training/rollout_probs_diff_mean"}) {
      EXPECT_EQ(trained[i][key], replayed[i][key]) << key << " of step " << i + 1;
    }
  }
}

TEST(RouterReplayRun, RecordedSamplesHaveTheirRouting) {
  const TempFolder folder;
  const std::vector<std::string> sets = {"model.dtype=bfloat16", "actor.router_replay=r3"};
  std::vector<std::string> sampling = sets;
  sampling.push_back("rollout.tensor_model_parallel_size=2");
  ProgramResult result = RunTandem(folder, "train", "run", ManyExperts(), sampling);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  result = Replay(folder, "run", sets);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectSameSteps(folder, "run");
}

TEST(RouterReplayRun, RefusesRecordedSamplesWithoutTheirRouting) {
  const TempFolder folder;
  ProgramResult result = RunTandem(folder, "train", "run", ManyExperts(), {});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  result = Replay(folder, "run", {"actor.router_replay=r3"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("1.jsonl:1: routed_experts: expected the experts"));
}

TEST(RouterReplayRun, TrainsOnEpisodesOfSeveralTurns) {
  const TempFolder folder;
  const std::vector<std::string> sets = {"model.dtype=bfloat16", "actor.router_replay=r3"};
  std::vector<std::string> sampling = sets;
  sampling.insert(sampling.end(), {"environment.name=calculator", "environment.max_turns=3",
                                   "rollout.max_tokens=6", "environment.max_tokens=24"});
  ProgramResult result = RunTandem(folder, "train", "turns", ManyExperts(), sampling);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  result = Replay(folder, "turns", sets);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectSameSteps(folder, "turns");
}

// Three calls, each of which continues the one before, and a fourth with a prompt of its own.
constexpr char kAgent[] = R"(
import json, os, sys, urllib.request

def complete(prompt):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/completions",
        json.dumps({"model": "m", "prompt": prompt, "max_tokens": 6}).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(request, timeout=200))["choices"][0]["text"]

prompt = json.load(sys.stdin)["prompt"]
text = prompt
for turn in range(3):
    text += complete(text) + "+1="
complete(prompt + "2=")
)";

TEST(RouterReplayRun, TrainsOnWhatAgentsSample) {
  const TempFolder folder;
  const std::string agent = folder.Write("agent.py", kAgent);
  const std::vector<std::string> sets = {"model.dtype=bfloat16", "actor.router_replay=r3"};
  std::vector<std::string> sampling = sets;
  sampling.insert(sampling.end(), {"environment.name=agent", "environment.command=python3 " + agent,
                                   "environment.max_tokens=60", "environment.timeout_s=200",
                                   "environment.max_concurrent=8", "data.max_prompt_length=60"});
  ProgramResult result = RunTandem(folder, "train", "agents", ManyExperts(), sampling);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // Of a sequence only the last token was never computed.
  for (const nlohmann::json& row : JsonLines(ReadWhole(folder / "agents/rollouts/1.jsonl"))) {
    for (const nlohmann::json& segment : row["segments"]) {
      EXPECT_TRUE(segment.contains("routed_experts")) << segment.dump();
    }
  }
  result = Replay(folder, "agents", sets);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectSameSteps(folder, "agents");
}

TEST(RouterReplayRun, NeedsExperts) {
  const TempFolder folder;
  const ProgramResult result =
      RunTandem(folder, "train", "dense", testing::TinyModelConfig(), {"actor.router_replay=r3"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("actor.router_replay: the model has no layer with experts"));
}

// The bias of the exported model, all layers.
std::vector<float> Biases(const TempFolder& folder, const std::string& name) {
  std::vector<float> out;
  const auto model = io::ModelFolder::Open(folder / name + "/model");
  EXPECT_OK(model.status());
  for (const std::string& tensor : model->names()) {
    if (tensor.find("e_score_correction_bias") == std::string::npos) continue;
    const auto view = model->Find(tensor);
    EXPECT_EQ(view->dtype, io::DType::kF32);
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

// In bfloat16 too biases are float32, on both sides alike.
TEST(RouterBiasRun, BiasesOfABfloat16ModelAreFloat32) {
  const TempFolder folder;
  constexpr float kRate = 0.001f;  // which bfloat16 rounds
  const ProgramResult result =
      RunTandem(folder, "train", "moved", CorrectedExperts(),
                {"model.dtype=bfloat16", "numerics=exact", "actor.router_bias_update_rate=0.001"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<float> moved = Biases(folder, "moved");
  ASSERT_EQ(moved.size(), 6u);
  bool any = false;
  for (const float bias : moved) {
    EXPECT_NEAR(bias, kRate * std::round(bias / kRate), 1e-8);
    any = any || bias != 0;
  }
  EXPECT_TRUE(any);
  for (const nlohmann::json& step : Metrics(folder, "moved")) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0);
  }
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
