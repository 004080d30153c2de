// Runs with numerics: exact, as a user starts them: what the trainer says of a sampled token is
// what the rollout said, to the last bit, and a run repeats itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;

constexpr int kSteps = 4;

// A run of two trainer ranks and two replicas into `folder`/NAME.
ProgramResult RunTandem(const TempFolder& folder, const std::string& name,
                        const std::vector<std::string>& sets, bool resume = false,
                        const std::string& architecture = "LlamaForCausalLM",
                        const nlohmann::json& changes = nlohmann::json::object()) {
  std::vector<std::string> args = TinyRun(folder, "train");
  nlohmann::json config = testing::TinyModelConfig(architecture);
  config.update(changes);
  folder.Write("model/config.json", config.dump());
  std::vector<std::string> all = {"numerics=exact",
                                  "run_dir=" + (folder / name),
                                  "trainer.total_steps=" + std::to_string(kSteps),
                                  "trainer.test_freq=0",
                                  "trainer.save_freq=2",
                                  "rollout.max_tokens=16",
                                  "rollout.block_size=16",
                                  "rollout.max_num_batched_tokens=24",
                                  "trainer.max_tokens_per_micro_batch=60",
                                  "actor.entropy_coeff=0.05",  // a gradient in every step
                                  "seed=11"};
  all.insert(all.end(), sets.begin(), sets.end());
  for (const std::string& set : all) args.insert(args.end(), {"--set", set});
  if (resume) args.push_back("--resume");
  return RunProgram("tandem", args);
}

std::vector<nlohmann::json> Metrics(const TempFolder& folder, const std::string& name) {
  std::vector<nlohmann::json> steps = JsonLines(ReadWhole(folder / name + "/metrics.jsonl"));
  std::erase_if(steps,
                [](const nlohmann::json& line) { return line["training/global_step"] == 0; });
  return steps;
}

std::vector<nlohmann::json> Samples(const TempFolder& folder, const std::string& name) {
  std::vector<nlohmann::json> samples;
  for (int step = 1; step <= kSteps; ++step) {
    for (auto& line :
         JsonLines(ReadWhole(folder / name + "/rollouts/" + std::to_string(step) + ".jsonl"))) {
      samples.push_back(std::move(line));
    }
  }
  return samples;
}

struct ExactRun {
  const char* name;
  std::vector<std::string> sets;
  const char* architecture = "LlamaForCausalLM";
  nlohmann::json changes = nlohmann::json::object();  // of config.json
};

// Of dots.llm1: routers with correction biases.
nlohmann::json CorrectedExperts() {
  return {{"architectures", {"Dots1ForCausalLM"}},
          {"model_type", "dots1"},
          {"n_routed_experts", 6},
          {"n_shared_experts", 1},
          {"first_k_dense_replace", 1},
          {"n_group", 1},
          {"topk_group", 1}};
}

// Of DeepSeek-V2: latent attention, a dense layer first, groups of experts and a shared one.
nlohmann::json LatentsAndExperts() {
  return {{"architectures", {"DeepseekV2ForCausalLM"}},
          {"model_type", "deepseek_v2"},
          {"num_key_value_heads", 4},
          {"kv_lora_rank", 12},
          {"q_lora_rank", 10},
          {"qk_nope_head_dim", 8},
          {"qk_rope_head_dim", 4},
          {"v_head_dim", 6},
          {"n_routed_experts", 6},
          {"n_shared_experts", 1},
          {"first_k_dense_replace", 1},
          {"norm_topk_prob", false},
          {"topk_method", "group_limited_greedy"},
          {"n_group", 3},
          {"topk_group", 2},
          {"routed_scaling_factor", 1.5}};
}

// Of Qwen3-Next: linear attention, then full attention with a gate; a dense layer, then experts and a
// shared one.
nlohmann::json LinearAttention() {
  return {{"architectures", {"Qwen3NextForCausalLM"}},
          {"model_type", "qwen3_next"},
          {"layer_types", {"linear_attention", "full_attention"}},
          {"partial_rotary_factor", 0.5},
          {"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"linear_key_head_dim", 12},
          {"linear_value_head_dim", 10},
          {"mlp_only_layers", {0}},
          {"num_experts", 6},
          {"shared_expert_intermediate_size", 20}};
}

// Of Llama 4: chunks and a dense layer, then a layer that does not rotate, with experts whose weights
// multiply what they read.
nlohmann::json ChunksAndWeighedInputs() {
  return {{"architectures", {"Llama4ForCausalLM"}},
          {"model_type", "llama4_text"},
          {"no_rope_layers", {1, 0}},
          {"attention_chunk_size", 6},
          {"floor_scale", 4},
          {"attn_scale", 0.3},
          {"num_local_experts", 6},
          {"num_experts_per_tok", 2},
          {"interleave_moe_layer_step", 2},
          {"intermediate_size", 24},
          {"intermediate_size_mlp", 48}};
}

// Of MiMo-V2-Flash: a dense layer, then one with a window, sinks, experts and twice the key-value heads.
nlohmann::json UnlikeLayers() {
  return {{"architectures", {"MiMoV2FlashForCausalLM"}},
          {"model_type", "mimo_v2_flash"},
          {"v_head_dim", 6},
          {"attention_value_scale", 0.6},
          {"sliding_window", 6},
          {"n_routed_experts", 6}};
}

// Of Gemma 4: a layer with a window, then one with larger heads whose values are its keys; experts beside dense
// layers.
nlohmann::json KeysAsValues() {
  return {{"architectures", {"Gemma4ForCausalLM"}},
          {"model_type", "gemma4_text"},
          {"layer_types", {"sliding_attention", "full_attention"}},
          {"sliding_window", 6},
          {"head_dim", 8},
          {"global_head_dim", 12},
          {"num_global_key_value_heads", 1},
          {"attention_k_eq_v", true},
          {"final_logit_softcapping", 20.0},
          {"hidden_size_per_layer_input", 0},
          {"enable_moe_block", true},
          {"num_experts", 6},
          {"top_k_experts", 2}};
}

// Of Gemma 4: the last two layers read the keys and values of the first two, and are wider; inputs of layers.
nlohmann::json SharedKeysAndInputs() {
  return {{"architectures", {"Gemma4ForCausalLM"}},
          {"model_type", "gemma4_text"},
          {"num_hidden_layers", 4},
          {"layer_types",
           {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
          {"sliding_window", 6},
          {"head_dim", 8},
          {"global_head_dim", 12},
          {"num_kv_shared_layers", 2},
          {"use_double_wide_mlp", true},
          {"hidden_size_per_layer_input", 6},
          {"vocab_size_per_layer_input", 15}};
}

class ExactRunTest : public ::testing::TestWithParam<ExactRun> {};

TEST_P(ExactRunTest, TrainerAndRolloutAgreeToTheLastBitAtEveryStep) {
  const TempFolder folder;
  const ProgramResult result = RunTandem(folder, "run", GetParam().sets, /*resume=*/false,
                                         GetParam().architecture, GetParam().changes);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<nlohmann::json> steps = Metrics(folder, "run");
  ASSERT_EQ(steps.size(), kSteps);
  for (const nlohmann::json& step : steps) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0);
    EXPECT_EQ(step["training/rollout_probs_diff_mean"], 0.0);
    EXPECT_EQ(step["training/rollout_probs_diff_tail"], 0.0);
    EXPECT_GT(step["actor/grad_norm"], 0.0);
    // Where it is weighed against the rollout's policy, every weight is 1.
    if (step.contains("rollout_corr/rollout_is_max")) {
      EXPECT_EQ(step["rollout_corr/rollout_is_max"], 1.0);
      EXPECT_EQ(step["rollout_corr/rollout_is_min"], 1.0);
      EXPECT_EQ(step["rollout_corr/kl"], 0.0);
      // The log-probs of the update's own forward pass are those of the scoring pass.
      EXPECT_EQ(step["actor/ppo_kl"], 0.0);
    }
  }
  std::set<double> logprobs;
  for (const nlohmann::json& sample : Samples(folder, "run")) {
    for (const nlohmann::json& logprob : sample["logprobs"]) logprobs.insert(logprob.get<double>());
  }
  EXPECT_GT(logprobs.size(), 100u);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, ExactRunTest,
    ::testing::Values(
        ExactRun{"float32", {}}, ExactRun{"bfloat16", {"model.dtype=bfloat16"}},
        ExactRun{"weighted",
                 {"model.dtype=bfloat16", "rollout.temperature=0.7", "rollout.top_p=0.95",
                  "algorithm.rollout_correction.rollout_is=token",
                  "trainer.activation_checkpointing=full"}},
        ExactRun{"two_updates",
                 {"actor.ppo_mini_batch_size=2", "rollout.temperature=1.3", "rollout.top_k=10"}},
        ExactRun{"experts", {"model.dtype=bfloat16"}, "Qwen3MoeForCausalLM"},
        ExactRun{"split_experts",
                 {"model.dtype=bfloat16", "trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
                 "Qwen3MoeForCausalLM",
                 {{"num_experts", 6}}},
        ExactRun{"split_experts_with_latents",
                 {"model.dtype=bfloat16", "trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
                 "Qwen3MoeForCausalLM",
                 LatentsAndExperts()},
        ExactRun{"split_experts_of_shards",
                 {"trainer.ranks=4", "trainer.mesh_shape=[2, 2]",
                  "trainer.mesh_dim_names=[dp_shard, ep]", "actor.optim.name=muon",
                  "actor.optim.muon.lr=1e-3"},
                 "Qwen3MoeForCausalLM",
                 LatentsAndExperts()},
        ExactRun{"linear_attention",
                 {"trainer.weight_transport=delta", "trainer.activation_checkpointing=selective"},
                 "Qwen3MoeForCausalLM",
                 LinearAttention()},
        ExactRun{"linear_attention_with_split_experts",
                 {"model.dtype=bfloat16", "trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
                 "Qwen3MoeForCausalLM",
                 LinearAttention()},
        ExactRun{"chunks",
                 {"model.dtype=bfloat16", "trainer.activation_checkpointing=selective",
                  "actor.router_replay=r3"},
                 "Qwen3MoeForCausalLM",
                 ChunksAndWeighedInputs()},
        ExactRun{"chunks_with_split_experts",
                 {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
                 "Qwen3MoeForCausalLM",
                 ChunksAndWeighedInputs()},
        ExactRun{"unlike_layers",
                 {"model.dtype=bfloat16", "trainer.activation_checkpointing=selective"},
                 "Qwen3MoeForCausalLM",
                 UnlikeLayers()},
        ExactRun{"unlike_layers_with_split_experts",
                 {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
                 "Qwen3MoeForCausalLM",
                 UnlikeLayers()},
        ExactRun{"keys_as_values",
                 {"model.dtype=bfloat16", "trainer.activation_checkpointing=selective"},
                 "Qwen3MoeForCausalLM",
                 KeysAsValues()},
        ExactRun{"keys_as_values_with_split_experts",
                 {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
                 "Qwen3MoeForCausalLM",
                 KeysAsValues()},
        ExactRun{"shared_keys_and_inputs",
                 {"model.dtype=bfloat16", "trainer.activation_checkpointing=selective"},
                 "LlamaForCausalLM",
                 SharedKeysAndInputs()},
        ExactRun{"replayed_experts",
                 {"model.dtype=bfloat16", "actor.router_replay=r3"},
                 "Qwen3MoeForCausalLM"},
        ExactRun{"balanced_experts",
                 {"model.dtype=bfloat16", "actor.router_aux_loss_coef=0.1",
                  "actor.router_z_loss_coef=0.01"},
                 "Qwen3MoeForCausalLM"},
        ExactRun{"moved_biases",
                 {"model.dtype=bfloat16", "actor.router_bias_update_rate=0.01"},
                 "Qwen3MoeForCausalLM",
                 CorrectedExperts()}),
    [](const auto& info) { return info.param.name; });

void ExpectSameRun(const TempFolder& folder, const std::string& a, const std::string& b) {
  const std::vector<nlohmann::json> samples[] = {Samples(folder, a), Samples(folder, b)};
  ASSERT_EQ(samples[0].size(), kSteps * 16);
  ASSERT_EQ(samples[1].size(), samples[0].size());
  for (size_t i = 0; i < samples[0].size(); ++i) {
    for (const char* key : {"prompt_ids", "response_ids", "logprobs"}) {
      ASSERT_EQ(samples[0][i][key], samples[1][i][key]) << key << " of sample " << i;
    }
  }
  const std::vector<nlohmann::json> metrics[] = {Metrics(folder, a), Metrics(folder, b)};
  ASSERT_EQ(metrics[0].size(), kSteps);
  ASSERT_EQ(metrics[1].size(), kSteps);
  for (int step = 0; step < kSteps; ++step) {
    for (const char* key :
         {"actor/loss", "actor/grad_norm", "actor/entropy", "critic/rewards/mean"}) {
      EXPECT_EQ(metrics[0][step][key], metrics[1][step][key]) << key << " of step " << step + 1;
    }
  }
  const std::string weights = ReadWhole(folder / a + "/model/model.safetensors");
  EXPECT_GT(weights.size(), 1000u);
  EXPECT_TRUE(weights == ReadWhole(folder / b + "/model/model.safetensors"))
      << "the trained weights differ";
}

TEST(ExactRun, OfTheSameSeedRepeatsItselfBitForBitAndAcrossAResume) {
  const TempFolder folder;
  const std::vector<std::string> bfloat16 = {"model.dtype=bfloat16"};
  ProgramResult result = RunTandem(folder, "first", bfloat16);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // Other threads, steps and micro-batches in the rollout: the same samples.
  result = RunTandem(folder, "second",
                     {"model.dtype=bfloat16", "rollout.max_num_batched_tokens=512",
                      "rollout.replicas=1", "rollout.threads=2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectSameRun(folder, "first", "second");

  result = RunTandem(folder, "resumed", {"model.dtype=bfloat16", "trainer.total_steps=2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  result = RunTandem(folder, "resumed", bfloat16, /*resume=*/true);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectSameRun(folder, "first", "resumed");
}

TEST(ExactScore, OfTrainerAndRolloutIsTheSameText) {
  const TempFolder folder;
  const ProgramResult trained = RunTandem(folder, "run", {"trainer.total_steps=1"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  std::string rows;
  for (int row = 0; row < 20; ++row) {
    nlohmann::json ids = nlohmann::json::array();
    for (int i = 0; i < 2 + 3 * row; ++i) ids.push_back((i * i + 5 * row) % 15);
    rows += nlohmann::json{{"ids", ids}}.dump() + "\n";
  }
  const std::string input = folder.Write("rows.jsonl", rows);
  for (const std::string dtype : {"float32", "bfloat16"}) {
    std::vector<std::string> outputs;
    for (const std::string side : {"trainer", "rollout"}) {
      const ProgramResult result =
          RunProgram("tandem", {"score", "--model", folder / "run/model", "--input", input,
                                "--side", side, "--dtype", dtype, "--numerics", "exact"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(JsonLines(result.out).size(), 20u);
      outputs.push_back(result.out);
    }
    EXPECT_EQ(outputs[0], outputs[1]) << dtype;
    const ProgramResult both =
        RunProgram("tandem", {"score", "--model", folder / "run/model", "--input", input, "--side",
                              "both", "--dtype", dtype, "--numerics", "exact"});
    ASSERT_EQ(both.exit_code, 0) << both.err;
    const auto alone = JsonLines(outputs[0]), lines = JsonLines(both.out);
    ASSERT_EQ(lines.size(), 20u);
    for (size_t row = 0; row < lines.size(); ++row) {
      EXPECT_EQ(lines[row]["trainer"], alone[row]["logprobs"]) << dtype << ", row " << row;
      EXPECT_EQ(lines[row]["rollout"], alone[row]["logprobs"]) << dtype << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace tandem
