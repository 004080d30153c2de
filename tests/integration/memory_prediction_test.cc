// What tools/tandem/plan predicts beside what the trainer counts: `tandem bench train` reports both.
// Bytes do not depend on time, so both are the same in every run; Gloo's own copies are in the
// count.
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"
#include "tests/support/vision_golden.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;

struct Case {
  const char* name;
  const char* architecture;
  int ranks;
  int batch;
  int length;
  const char* dtype;
  std::vector<std::string> settings;
  nlohmann::json changes = nlohmann::json::object();  // of config.json
  int images = 0;                                     // in each sequence
};

class MemoryPrediction : public ::testing::TestWithParam<Case> {};

// Of DeepSeek-V2: latent attention, a dense layer first, and a shared expert.
nlohmann::json LatentsAndExperts() {
  return {{"architectures", {"DeepseekV2ForCausalLM"}},
          {"model_type", "deepseek_v2"},
          {"num_key_value_heads", 8},
          {"kv_lora_rank", 48},
          {"q_lora_rank", 64},
          {"qk_nope_head_dim", 16},
          {"qk_rope_head_dim", 8},
          {"v_head_dim", 20},
          {"n_routed_experts", 8},
          {"n_shared_experts", 1},
          {"first_k_dense_replace", 1},
          {"norm_topk_prob", false},
          {"topk_method", "greedy"}};
}

// Of Llama 4: chunks, a layer that does not rotate, and experts whose weights multiply what they read.
nlohmann::json WeighedInputs() {
  return {{"architectures", {"Llama4ForCausalLM"}},
          {"model_type", "llama4_text"},
          {"num_local_experts", 8},
          {"num_experts_per_tok", 2},
          {"intermediate_size", 96},
          {"intermediate_size_mlp", 384},
          {"interleave_moe_layer_step", 2},
          {"attention_chunk_size", 128},
          {"floor_scale", 64}};
}

// Of MiMo-V2-Flash: a dense layer, then layers with a window, sinks, experts and twice the key-value heads.
nlohmann::json UnlikeLayers() {
  return {{"architectures", {"MiMoV2FlashForCausalLM"}},
          {"model_type", "mimo_v2_flash"},
          {"partial_rotary_factor", 0.5},
          {"num_key_value_heads", 2},
          {"v_head_dim", 20},
          {"sliding_window", 128},
          {"n_routed_experts", 8}};
}

// Of Gemma 4: every other layer has larger heads.
nlohmann::json Gemma4(const nlohmann::json& more) {
  nlohmann::json config = {
      {"architectures", {"Gemma4ForCausalLM"}},
      {"model_type", "gemma4_text"},
      {"layer_types",
       {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
      {"sliding_window", 128},
      {"global_head_dim", 32}};
  config.update(more);
  return config;
}

// Values of full layers are their keys; experts beside dense layers.
nlohmann::json KeysAsValues() {
  return Gemma4({{"num_global_key_value_heads", 2},
                 {"attention_k_eq_v", true},
                 {"hidden_size_per_layer_input", 0},
                 {"enable_moe_block", true},
                 {"num_experts", 8},
                 {"top_k_experts", 2}});
}

// The last two layers read the keys and values of the first two, and are wider; inputs of layers.
nlohmann::json SharedKeysAndInputs() {
  return Gemma4({{"num_kv_shared_layers", 2},
                 {"use_double_wide_mlp", true},
                 {"hidden_size_per_layer_input", 32},
                 {"vocab_size_per_layer_input", 2048}});
}

// Of Qwen3-Next: linear attention in two of four layers, a gate in the others, experts in the last.
nlohmann::json LinearAttention() {
  return {{"architectures", {"Qwen3NextForCausalLM"}},
          {"model_type", "qwen3_next"},
          {"full_attention_interval", 2},
          {"partial_rotary_factor", 0.5},
          {"linear_num_key_heads", 4},
          {"linear_num_value_heads", 8},
          {"linear_key_head_dim", 24},
          {"linear_value_head_dim", 20},
          {"mlp_only_layers", {0, 1, 2}},
          {"shared_expert_intermediate_size", 64}};
}

// A model with a tower, of the shape of the golden one `name`.
std::string WriteVisionModel(const TempFolder& folder, const std::string& name) {
  const std::string golden = testing::VisionGolden(name);
  nlohmann::json config = nlohmann::json::parse(testing::ReadWhole(golden + "/config.json"));
  nlohmann::json& text = config["text_config"];
  text["hidden_size"] = 128;
  text["intermediate_size"] = 384;
  text["num_hidden_layers"] = 4;
  text["num_attention_heads"] = 8;
  text["num_key_value_heads"] = 4;
  text["vocab_size"] = 2048;
  text["max_position_embeddings"] = 4096;
  text["rope_parameters"]["mrope_section"] = {2, 3, 3};
  nlohmann::json& tower = config["vision_config"];
  const bool has_windows = tower.contains("window_size");
  tower["depth"] = 4;
  tower["num_heads"] = 4;
  tower["hidden_size"] = has_windows ? 96 : 128;
  if (has_windows) {
    tower["intermediate_size"] = 272;
    tower["out_hidden_size"] = 128;
  } else {
    tower["embed_dim"] = 96;
    tower["mlp_ratio"] = 4;
  }
  folder.Write("model/config.json", config.dump());
  nlohmann::json processor =
      nlohmann::json::parse(testing::ReadWhole(golden + "/preprocessor_config.json"));
  processor["size"]["longest_edge"] = 1 << 20;
  folder.Write("model/preprocessor_config.json", processor.dump());
  return folder / "model";
}

// The test's model is too small for bytes to be told from bookkeeping; this one is not.
std::string WriteModel(const TempFolder& folder, const Case& c) {
  const std::string architecture = c.architecture;
  if (c.images > 0) return WriteVisionModel(folder, architecture);
  const std::string path = testing::WriteTinyModel(folder, architecture);
  nlohmann::json config = nlohmann::json::parse(testing::ReadWhole(path + "/config.json"));
  config["hidden_size"] = 128;
  config["intermediate_size"] = 384;
  config["num_hidden_layers"] = 4;
  config["num_attention_heads"] = 8;
  config["num_key_value_heads"] = 4;
  config["head_dim"] = 16;
  config["vocab_size"] = 2048;
  config["max_position_embeddings"] = 4096;
  if (architecture == "Qwen3MoeForCausalLM") {
    config["num_experts"] = 8;
    config["moe_intermediate_size"] = 96;
  }
  if (architecture == "MiniCPM3ForCausalLM") {
    config.update({{"num_key_value_heads", 8},
                   {"kv_lora_rank", 48},
                   {"q_lora_rank", 64},
                   {"qk_nope_head_dim", 16},
                   {"qk_rope_head_dim", 8},
                   {"v_head_dim", 20}});
  }
  config.update(c.changes);
  folder.Write("model/config.json", config.dump());
  return path;
}

TEST_P(MemoryPrediction, IsWithinAHundredthOfWhatTheTrainerCounts) {
  const Case& c = GetParam();
  const TempFolder folder;
  std::vector<std::string> args = {"bench",
                                   "train",
                                   "--model",
                                   WriteModel(folder, c),
                                   "--ranks",
                                   std::to_string(c.ranks),
                                   "--batch",
                                   std::to_string(c.batch),
                                   "--sequence-length",
                                   std::to_string(c.length),
                                   "--steps",
                                   "1",
                                   "--dtype",
                                   c.dtype,
                                   "--set",
                                   "model.random_init=true"};
  if (c.images > 0) {
    args.insert(args.end(), {"--images", std::to_string(c.images), "--image-size", "96"});
  }
  for (const std::string& setting : c.settings) args.insert(args.end(), {"--set", setting});

  const ProgramResult result = RunProgram("tandem", args);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json line = nlohmann::json::parse(result.out);
  const double measured = line["peak_tensor_bytes"];
  const double predicted = line["predicted_peak_tensor_bytes"];
  EXPECT_NEAR(predicted / measured, 1.0, 0.01) << predicted << " of " << measured;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MemoryPrediction,
    ::testing::Values(
        Case{"OneRank", "LlamaForCausalLM", 1, 4, 256, "float32", {}},
        Case{"OneRankInBfloat16", "Qwen2ForCausalLM", 1, 2, 512, "bfloat16", {}},
        Case{"TwoRanks", "Qwen3ForCausalLM", 2, 4, 256, "float32", {}},
        Case{"TwoRanksInBfloat16", "Qwen2ForCausalLM", 2, 1, 2048, "bfloat16", {}},
        Case{"FourRanksWithSmallMicroBatches",
             "Qwen2ForCausalLM",
             4,
             4,
             128,
             "bfloat16",
             {"trainer.max_tokens_per_micro_batch=256"}},
        Case{"EightRanksOfShortSequences", "LlamaForCausalLM", 8, 16, 64, "float32", {}},
        Case{"CheckpointedBlocks",
             "Qwen2ForCausalLM",
             2,
             2,
             1024,
             "float32",
             {"trainer.activation_checkpointing=full"}},
        Case{"CheckpointedBlocksInBfloat16",
             "Qwen3ForCausalLM",
             1,
             2,
             1024,
             "bfloat16",
             {"trainer.activation_checkpointing=full"}},
        Case{"CopiesOfTheModel",
             "LlamaForCausalLM",
             4,
             2,
             512,
             "bfloat16",
             {"trainer.mesh_shape=[2, 2]", "trainer.sharding_strategy=hybrid_shard"}},
        Case{"UnitsThatStay",
             "LlamaForCausalLM",
             2,
             2,
             512,
             "float32",
             {"trainer.sharding_strategy=shard_grad_op"}},
        // Both are there from the start, though supervised steps do not ask them.
        Case{"AReferenceBesideThePolicy",
             "Qwen2ForCausalLM",
             1,
             2,
             512,
             "bfloat16",
             {"actor.use_kl_loss=true"}},
        Case{"ACriticBesideThePolicy",
             "LlamaForCausalLM",
             1,
             4,
             256,
             "float32",
             {"algorithm.adv_estimator=gae"}},
        Case{"AFrozenEmbeddingAndFrozenNorms",
             "Qwen2ForCausalLM",
             1,
             2,
             512,
             "bfloat16",
             {"trainer.frozen_parameters=[model.embed_tokens.weight, '*norm.weight']"}},
        Case{"AFrozenEmbeddingAndFrozenNormsOnTwoRanks",
             "LlamaForCausalLM",
             2,
             2,
             512,
             "float32",
             {"trainer.frozen_parameters=[model.embed_tokens.weight, '*norm.weight']"}},
        Case{"OnlyTheLastBlocksTrain",
             "LlamaForCausalLM",
             2,
             2,
             512,
             "float32",
             {"trainer.frozen_parameters=[model.embed_tokens.weight, 'model.layers.0.*', "
              "'model.layers.1.*']",
              "trainer.activation_checkpointing=full"}},
        Case{"Experts", "Qwen3MoeForCausalLM", 1, 4, 512, "float32", {}},
        Case{"ExpertsInBfloat16OnTwoRanks",
             "Qwen3MoeForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"}},
        // Every token has all experts, so that each rank's compute as many rows.
        Case{"EvenlySplitExperts",
             "Qwen3MoeForCausalLM",
             2,
             4,
             512,
             "float32",
             {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
             {{"num_experts", 4}, {"num_experts_per_tok", 4}}},
        // The prediction is for the load that the trainer reports.
        Case{"SplitExperts",
             "Qwen3MoeForCausalLM",
             2,
             4,
             512,
             "float32",
             {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"}},
        Case{"SplitExpertsOfShardsInBfloat16",
             "Qwen3MoeForCausalLM",
             4,
             2,
             512,
             "bfloat16",
             {"trainer.mesh_shape=[2, 2]", "trainer.mesh_dim_names=[dp_shard, ep]",
              "trainer.activation_checkpointing=selective"}},
        Case{"SplitExpertsWithLatents",
             "Qwen3MoeForCausalLM",
             2,
             2,
             512,
             "float32",
             {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
             LatentsAndExperts()},
        Case{"WeighedInputs", "Qwen3MoeForCausalLM", 1, 4, 512, "float32", {}, WeighedInputs()},
        Case{"WeighedInputsInBfloat16OnTwoRanks",
             "Qwen3MoeForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"},
             WeighedInputs()},
        Case{"SplitExpertsWithWeighedInputs",
             "Qwen3MoeForCausalLM",
             2,
             4,
             512,
             "float32",
             {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"},
             WeighedInputs()},
        Case{"UnlikeLayers", "Qwen3MoeForCausalLM", 1, 4, 512, "float32", {}, UnlikeLayers()},
        Case{"UnlikeLayersInBfloat16OnTwoRanks",
             "Qwen3MoeForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"},
             UnlikeLayers()},
        Case{"KeysAsValues", "Qwen3MoeForCausalLM", 1, 4, 512, "float32", {}, KeysAsValues()},
        Case{"KeysAsValuesInBfloat16OnTwoRanks",
             "Qwen3MoeForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"},
             KeysAsValues()},
        Case{"KeysAsValuesOnTwoTensorRanks",
             "Qwen3MoeForCausalLM",
             2,
             4,
             512,
             "float32",
             {"trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[tp]"},
             KeysAsValues()},
        Case{"SharedKeysAndInputs",
             "LlamaForCausalLM",
             1,
             4,
             512,
             "float32",
             {},
             SharedKeysAndInputs()},
        Case{"SharedKeysAndInputsInBfloat16OnTwoRanks",
             "LlamaForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"},
             SharedKeysAndInputs()},
        Case{"SplitExpertsWithMuon",
             "Qwen3MoeForCausalLM",
             4,
             2,
             512,
             "float32",
             {"trainer.mesh_shape=[2, 2]", "trainer.mesh_dim_names=[dp_shard, ep]",
              "actor.optim.name=muon", "actor.optim.muon.lr=1e-3"}},
        Case{"Latents", "MiniCPM3ForCausalLM", 1, 4, 512, "float32", {}},
        Case{"LatentsInBfloat16OnTwoRanks",
             "MiniCPM3ForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"}},
        Case{"LatentsOfSharedSequences",
             "MiniCPM3ForCausalLM",
             2,
             2,
             512,
             "float32",
             {"trainer.ulysses_sequence_parallel_size=2"}},
        Case{"LinearAttention", "Qwen3MoeForCausalLM", 1, 4, 512, "float32", {}, LinearAttention()},
        Case{"LinearAttentionInBfloat16OnTwoRanks",
             "Qwen3MoeForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.activation_checkpointing=selective"},
             LinearAttention()},
        // 144 placeholders, of 576 patches, for a picture.
        Case{"PicturesForAFrozenTower", "qwen2-vl", 1, 4, 256, "float32", {}, {}, 1},
        Case{"PicturesForAFrozenTowerInBfloat16OnTwoRanks",
             "qwen2-5-vl",
             2,
             2,
             512,
             "bfloat16",
             {},
             {},
             2},
        Case{"PicturesForATowerThatLearns",
             "qwen2-vl",
             1,
             4,
             256,
             "float32",
             {"actor.vision_lr=1e-4"},
             {},
             1},
        Case{"PicturesForATowerThatLearnsInBfloat16OnTwoRanks",
             "qwen2-5-vl",
             2,
             2,
             512,
             "bfloat16",
             {"actor.vision_lr=1e-4"},
             {},
             2},
        Case{"PicturesForACheckpointedTower",
             "qwen2-5-vl",
             1,
             2,
             512,
             "float32",
             {"actor.vision_lr=1e-4", "trainer.activation_checkpointing=full"},
             {},
             2},
        Case{"LargeUnits",
             "LlamaForCausalLM",
             2,
             2,
             512,
             "bfloat16",
             {"trainer.min_unit_bytes=2000000"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
