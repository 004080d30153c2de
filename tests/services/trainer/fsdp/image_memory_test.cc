// What the plan predicts of a rank that trains on images beside what LibTorch allocates, with the tower
// frozen, trained, and computed again in the backward pass.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/read_file.h"
#include "common/model/images/pixel_cache.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
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

struct Case {
  const char* name;
  const char* golden;
  at::ScalarType dtype = at::kFloat;
  bool trains_tower = false;
  bool checkpoints = false;
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
    text["rope_parameters"]["mrope_section"] = {2, 3, 3};
    json& tower = config["vision_config"];
    const bool has_windows = tower.contains("window_size");
    tower.update({{"depth", 4}, {"num_heads", 4}, {"hidden_size", has_windows ? 96 : 128}});
    if (has_windows) {
      tower.update({{"intermediate_size", 272}, {"out_hidden_size", 128}});
    } else {
      tower.update({{"embed_dim", 96}, {"mlp_ratio", 4}});
    }
    ASSERT_OK_AND_ASSIGN(spec_, model::ParseModelSpec(config, golden));
    ASSERT_OK_AND_ASSIGN(json processor, io::ReadJsonFile(golden + "/preprocessor_config.json"));
    processor["size"]["longest_edge"] = 1 << 20;
    folder_.Write("preprocessor_config.json", processor.dump());
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
      ids.insert(ids.end(), kRows, spec_.vision->image_token_id);
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
    TensorMemory::Install();
    const int64_t before = TensorMemory::current_bytes();
    TensorMemory::ResetPeak();
    testing::LocalMesh world({});
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options;
      options.spec = spec_;
      options.mesh = &mesh;
      options.compute_dtype = c.dtype;
      options.unit_limits.trains_vision = c.trains_tower;
      if (c.checkpoints) options.activation_checkpointing = ActivationCheckpointing::kFull;
      ASSERT_OK_AND_ASSIGN(const auto model, ShardedModel::Create(options));
      ASSERT_OK(model->RandomInit(/*seed=*/3));
      AdamW optimizer({}, *model, mesh);
      const PackedBatch batch = Batch();
      TensorMemory::ResetPeak();  // of drawing the weights
      for (int step = 0; step < 2; ++step) {
        ASSERT_OK(model
                      ->ForwardBackward(batch,
                                        [](const model::LogProbs& out) -> at::Tensor {
                                          return -out.logprobs.sum();
                                        })
                      .status());
        ASSERT_OK(optimizer.Step(1e-3).status());
      }
    });
    return TensorMemory::peak_bytes() - before;
  }

  plan::MemorySnapshot Predicted() const {
    const Case& c = GetParam();
    setup::RankSetup setup;
    setup.element_bytes = c.dtype == at::kFloat ? 4 : 2;
    setup.unit_limits.trains_vision = c.trains_tower;
    if (c.checkpoints) setup.checkpointing = config::v1::ACTIVATION_CHECKPOINTING_FULL;
    plan::RankWorkload work = plan::SupervisedWorkload(kSequences, kLength, kSequences * kLength);
    work.image_prompts = work.step_image_prompts = kSequences;
    work.rows_per_prompt = kRows;
    return plan::PredictRankMemory(spec_, setup, work).peak;
  }

  testing::TempFolder folder_;
  model::ModelSpec spec_;
  std::unique_ptr<model::PixelCache> pixels_;
};

TEST_P(ImageMemory, IsWithinAHundredthOfThePrediction) {
  const plan::MemorySnapshot predicted = Predicted();
  const auto measured = static_cast<double>(Measured());
  EXPECT_NEAR(static_cast<double>(predicted.total()) / measured, 1.0, 0.01)
      << predicted.total() << " in " << predicted.place << ", of " << measured;
}

INSTANTIATE_TEST_SUITE_P(
    Towers, ImageMemory,
    ::testing::Values(Case{"Frozen", "qwen2-vl"},
                      Case{"FrozenInBfloat16", "qwen2-vl", at::kBFloat16},
                      Case{"FrozenWithWindows", "qwen2-5-vl"},
                      Case{"Trained", "qwen2-vl", at::kFloat, true},
                      Case{"TrainedInBfloat16", "qwen2-vl", at::kBFloat16, true},
                      Case{"TrainedWithWindows", "qwen2-5-vl", at::kFloat, true},
                      Case{"TrainedWithWindowsInBfloat16", "qwen2-5-vl", at::kBFloat16, true},
                      Case{"Checkpointed", "qwen2-vl", at::kFloat, true, true},
                      Case{"CheckpointedWithWindows", "qwen2-5-vl", at::kBFloat16, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::trainer
