// What the plan predicts of a rank that trains on images beside what LibTorch allocates, with the tower
// frozen, trained, and computed again in the backward pass.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/io/read_file.h"
#include "common/model/images/pixel_cache.h"
#include "services/trainer/data/micro_batch.h"
#include "tests/services/trainer/fsdp/training_memory.h"
#include "tests/support/make_png.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vision_golden.h"
#include "tools/tandem/plan/batch_plan.h"
#include "tools/tandem/plan/rank_memory.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr int64_t kSequences = 4;
constexpr int64_t kLength = 256;  // tokens that the model sees
constexpr int kSide = 96;         // of a picture, in pixels: 144 rows of 576 patches
constexpr int64_t kRows = 144;
constexpr int64_t kColumns = 12;

struct Case {
  const char* name;
  const char* golden;
  at::ScalarType dtype = at::kFloat;
  bool trains_tower = false;
  bool checkpoints = false;
  double tolerance = 0.01;
};

class ImageMemory : public ::testing::TestWithParam<Case> {
 protected:
  // The golden model with sizes at which tensors can be told from bookkeeping.
  void SetUp() override {
    const std::string golden = testing::VisionGolden(GetParam().golden);
    ASSERT_OK_AND_ASSIGN(json config, io::ReadJsonFile(golden + "/config.json"));
    json& text = config["text_config"];
    text.update({{"hidden_size", 128},
                 {"intermediate_size", 384},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"vocab_size", 2048},
                 {"max_position_embeddings", 4096}});
    json& tower = config["vision_config"];
    ASSERT_OK_AND_ASSIGN(json processor, io::ReadJsonFile(golden + "/preprocessor_config.json"));
    const bool is_pixtral = tower["model_type"] == "pixtral";
    if (tower.contains("num_hidden_layers") && !is_pixtral) {
      if (config.contains("image_grid_pinpoints")) return TakeCanvas(config, processor);
      // A tile of as many rows as the others make of the picture.
      const bool is_gemma = config["model_type"] == "gemma3";
      const bool has_texts = config.contains("scale_factor");
      const bool merges = config["model_type"] == "internvl" || is_gemma || has_texts;
      tower.update({{"num_hidden_layers", 5}, {"num_attention_heads", 4}, {"hidden_size", 96}});
      tower.update(
          {{"intermediate_size", 272}, {"image_size", 48}, {"patch_size", merges ? 2 : 4}});
      if (has_texts) {
        config["scale_factor"] = 2;
        processor.update({{"do_image_splitting", false}, {"size", {{"longest_edge", 48}}}});
        processor["max_image_size"] = processor["size"];
        Take(config, processor);
        return;
      }
      const json size = {{"height", 48}, {"width", 48}};
      processor["size"] = size;
      if (is_gemma) {
        config["mm_tokens_per_image"] = kRows;
        text.update({{"head_dim", 16}, {"layer_types", json::array()}});
        for (int i = 0; i < 4; ++i) {
          text["layer_types"].push_back(i == 1 ? "full_attention" : "sliding_attention");
        }
      } else {
        processor[merges ? "crop_to_patches" : "crop_size"] = merges ? json(false) : size;
      }
      Take(config, processor);
      return;
    }
    const bool has_windows = tower.contains("window_size");
    const bool has_positions = tower.contains("num_position_embeddings");
    if (is_pixtral) {
      text["head_dim"] = 16;
      tower.update({{"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"hidden_size", 96},
                    {"intermediate_size", 272}});
    } else {
      text["rope_parameters"]["mrope_section"] = {2, 3, 3};
      const int width = has_windows || has_positions ? 96 : 128;
      tower.update({{"depth", 4}, {"num_heads", 4}, {"hidden_size", width}});
    }
    if (has_positions) {
      // Tables of tokens and positions that show in the sum.
      text["head_dim"] = 16;
      text["vocab_size"] = 8192;
      text["rope_parameters"]["mrope_section"] = {4, 2, 2};
      tower["num_position_embeddings"] = 320 * 320;
    }
    if (has_windows || has_positions) {
      tower.update({{"intermediate_size", 272}, {"out_hidden_size", 128}});
    } else if (!is_pixtral) {
      tower.update({{"embed_dim", 96}, {"mlp_ratio", 4}});
    }
    processor["size"]["longest_edge"] =
        is_pixtral ? kSide : 1 << 20;  // of Qwen's a number of pixels
    Take(config, processor);
  }

  // The picture fills a canvas of 2 x 2 tiles of 6 x 6 patches; with "anyres_max_2" its 12 lines of 12 rows
  // become 8 of 8.
  void TakeCanvas(json config, json processor) {
    const json pinpoints = {{48, 48}};
    config["vision_config"].update({{"num_hidden_layers", 5},
                                    {"num_attention_heads", 4},
                                    {"hidden_size", 96},
                                    {"intermediate_size", 272},
                                    {"image_size", 24},
                                    {"patch_size", 4}});
    config["image_grid_pinpoints"] = processor["image_grid_pinpoints"] = pinpoints;
    processor["size"] = {{"height", 24}, {"width", 24}};
    rows_ = config["vision_aspect_ratio"] == "anyres_max_2" ? 36 + 8 * 9 : 36 + 12 * 13;
    Take(config, processor);
  }

  void Take(const json& config, const json& processor) {
    const std::string golden = testing::VisionGolden(GetParam().golden);
    ASSERT_OK_AND_ASSIGN(spec_, model::ParseModelSpec(config, golden));
    folder_.Write("preprocessor_config.json", processor.dump());
    if (const auto sizes = io::ReadJsonFile(golden + "/processor_config.json"); sizes.ok()) {
      folder_.Write("processor_config.json", sizes->dump());
    }
    ASSERT_OK_AND_ASSIGN(model::ImagePreparer preparer,
                         model::ImagePreparer::Load(folder_.path(), *spec_.vision));
    pixels_ = std::make_unique<model::PixelCache>(std::move(preparer));
  }

  // Sequences that begin with a picture of their own.
  PackedBatch Batch() const {
    TrainingBatch batch;
    batch.images = std::make_shared<BatchImages>(*pixels_, *spec_.vision);
    std::vector<int64_t> indices;
    for (int64_t s = 0; s < kSequences; ++s) {
      std::vector<int64_t> ids = {1};
      for (int64_t row = 0; row < rows_; ++row) {
        if (spec_.vision->has_line_breaks && row > 0 && row % kColumns == 0) ids.push_back(2);
        ids.push_back(spec_.vision->image_token_id);
      }
      while (static_cast<int64_t>(ids.size()) <= kLength) {
        ids.push_back(100 + static_cast<int64_t>(ids.size()) + s);
      }
      Sequence& sequence =
          batch.sequences.emplace_back(MakeScoredSequence({ids.begin(), ids.end()}, 1.0));
      const std::string file = testing::MakePng(kSide, kSide, [s](int x, int y) {
        return std::array<uint8_t, 3>{static_cast<uint8_t>(x), static_cast<uint8_t>(y),
                                      static_cast<uint8_t>(s)};
      });
      AddImages({batch.images->Add(file)}, *batch.images, sequence);
      indices.push_back(s);
    }
    return PackMicroBatch(batch, indices, std::vector<double>(kSequences, 1.0)).packed;
  }

  int64_t Measured() const {
    const Case& c = GetParam();
    ShardedModelOptions options;
    options.spec = spec_;
    options.compute_dtype = c.dtype;
    options.unit_limits.trains_vision = c.trains_tower;
    if (c.checkpoints) options.activation_checkpointing = ActivationCheckpointing::kFull;
    return TrainingPeak(std::move(options), [this] { return Batch(); });
  }

  plan::MemorySnapshot Predicted() const {
    const Case& c = GetParam();
    setup::RankSetup setup;
    setup.element_bytes = c.dtype == at::kFloat ? 4 : 2;
    setup.unit_limits.trains_vision = c.trains_tower;
    if (c.checkpoints) setup.checkpointing = config::v1::ACTIVATION_CHECKPOINTING_FULL;
    plan::RankWorkload work = plan::SupervisedWorkload(kSequences, kLength, kSequences * kLength);
    work.image_prompts = work.step_image_prompts = kSequences;
    work.rows_per_prompt = rows_;
    return plan::PredictRankMemory(spec_, setup, work).peak;
  }

  testing::TempFolder folder_;
  model::ModelSpec spec_;
  int64_t rows_ = kRows;
  std::unique_ptr<model::PixelCache> pixels_;
};

TEST_P(ImageMemory, IsWithinAHundredthOfThePrediction) {
  ExpectPredicted(Predicted(), Measured(), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Towers, ImageMemory,
    ::testing::Values(
        Case{"Frozen", "qwen2-vl"}, Case{"FrozenInBfloat16", "qwen2-vl", at::kBFloat16},
        Case{"FrozenWithWindows", "qwen2-5-vl"}, Case{"Trained", "qwen2-vl", at::kFloat, true},
        Case{"TrainedInBfloat16", "qwen2-vl", at::kBFloat16, true},
        Case{"TrainedWithWindows", "qwen2-5-vl", at::kFloat, true},
        Case{"TrainedWithWindowsInBfloat16", "qwen2-5-vl", at::kBFloat16, true},
        Case{"FrozenWithPositions", "qwen3-vl"},
        Case{"TrainedWithPositions", "qwen3-vl", at::kFloat, true},
        Case{"TrainedWithPositionsInBfloat16", "qwen3-vl", at::kBFloat16, true},
        // The peak is in the backward pass of both tables: neither may count twice.
        Case{"CheckpointedWithPositions", "qwen3-vl", at::kFloat, true, true, 0.004},
        Case{"FrozenTiles", "llava"}, Case{"FrozenTilesInBfloat16", "internvl", at::kBFloat16},
        Case{"TrainedTiles", "llava", at::kFloat, true},
        Case{"TrainedTilesThatMerge", "internvl", at::kFloat, true},
        Case{"TrainedTilesInBfloat16", "internvl-norms", at::kBFloat16, true},
        Case{"CheckpointedTiles", "llava", at::kBFloat16, true, true},
        Case{"FrozenMeans", "gemma3"}, Case{"TrainedMeans", "gemma3", at::kFloat, true},
        Case{"TrainedMeansInBfloat16", "gemma3", at::kBFloat16, true},
        Case{"CheckpointedMeans", "gemma3", at::kFloat, true, true},
        Case{"FrozenCanvas", "llava-onevision"},
        Case{"TrainedCanvas", "llava-onevision", at::kFloat, true},
        Case{"TrainedCanvasInBfloat16", "llava-onevision", at::kBFloat16, true},
        Case{"FrozenCanvasThatShrinks", "llava-onevision-shrunk"},
        Case{"TrainedCanvasThatShrinks", "llava-onevision-shrunk", at::kFloat, true},
        Case{"TrainedCanvasThatShrinksInBfloat16", "llava-onevision-shrunk", at::kBFloat16, true},
        Case{"FrozenTilesWithOneMatrix", "idefics3"},
        Case{"TrainedTilesWithOneMatrix", "idefics3", at::kFloat, true},
        Case{"TrainedTilesWithOneMatrixInBfloat16", "smolvlm", at::kBFloat16, true},
        Case{"CheckpointedTilesWithOneMatrix", "idefics3", at::kBFloat16, true, true},
        Case{"Checkpointed", "qwen2-vl", at::kFloat, true, true},
        Case{"CheckpointedWithWindows", "qwen2-5-vl", at::kBFloat16, true, true},
        Case{"FrozenPixtral", "mistral3"},
        Case{"FrozenPixtralInBfloat16", "mistral3", at::kBFloat16},
        Case{"TrainedPixtral", "mistral3", at::kFloat, true},
        Case{"TrainedPixtralInBfloat16", "mistral3-ministral", at::kBFloat16, true},
        Case{"CheckpointedPixtral", "mistral3", at::kFloat, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::trainer
