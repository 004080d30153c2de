// Trained models that others published continue text as transformers does: the greedy ids beside
// them were computed by it in float32.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "common/model/arena.h"
#include "common/model/load_parameters.h"
#include "common/model/model_spec.h"
#include "common/model/packed_attention.h"
#include "common/model/transformer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::model {
namespace {

struct LoadedModel {
  explicit LoadedModel(const ModelSpec& spec) : model(spec), arena(model.table(), at::kFloat) {}
  Transformer model;
  Arena arena;
};

std::unique_ptr<LoadedModel> Load(const std::string& path) {
  absl::StatusOr<io::ModelFolder> folder = io::ModelFolder::Open(path);
  EXPECT_OK(folder);
  if (!folder.ok()) return nullptr;
  absl::StatusOr<ModelSpec> spec = ParseModelSpec(folder->config().json, folder->config().path);
  EXPECT_OK(spec);
  if (!spec.ok()) return nullptr;
  auto loaded = std::make_unique<LoadedModel>(*spec);
  EXPECT_OK(LoadParameters(*folder, loaded->arena));
  return loaded;
}

// The most likely token after each token of `ids`.
std::vector<int64_t> Predictions(const LoadedModel& loaded, const std::vector<int64_t>& ids) {
  const at::NoGradGuard no_grad;
  const Transformer& model = loaded.model;
  const at::Tensor cu_seqlens = at::tensor({int64_t{0}, static_cast<int64_t>(ids.size())});
  PackedAttention attention(cu_seqlens);
  const at::Tensor positions = PackedPositions(cu_seqlens);
  const Rotary rotary = model.MakeRotary(positions);
  at::Tensor x = model.Embed(loaded.arena, at::tensor(ids), positions);
  for (int64_t i = 0; i < model.spec().num_layers(); ++i) {
    x = model.Block(loaded.arena, i, x, rotary, attention);
  }
  const at::Tensor best = model.Logits(loaded.arena, model.FinalNorm(loaded.arena, x)).argmax(-1);
  return std::vector<int64_t>(best.const_data_ptr<int64_t>(),
                              best.const_data_ptr<int64_t>() + best.numel());
}

// One pass over prompt and continuation: what follows each prefix is the token that is there.
void ExpectGreedy(const LoadedModel& loaded, std::vector<int64_t> ids, size_t prompt_length) {
  ASSERT_GT(ids.size(), prompt_length);
  const std::vector<int64_t> predicted = Predictions(loaded, ids);
  for (size_t t = prompt_length; t < ids.size(); ++t) {
    ASSERT_EQ(predicted[t - 1], ids[t]) << "at position " << t;
  }
}

TEST(TrainedModels, TinyStoriesContinuesItsPromptsAsTransformersDoes) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  const auto loaded = Load(testing::TestData("models/tinystories-656k"));
  ASSERT_NE(loaded, nullptr);
  std::ifstream lines(testing::TestData("models/tinystories-656k/greedy_3.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const nlohmann::json row = nlohmann::json::parse(line);
    std::vector<int64_t> ids = row["prompt_ids"].get<std::vector<int64_t>>();
    const size_t prompt_length = ids.size();
    for (int64_t id : row["greedy_ids"].get<std::vector<int64_t>>()) ids.push_back(id);
    ExpectGreedy(*loaded, ids, prompt_length);
  }
  EXPECT_EQ(count, 3);
}

TEST(TrainedModels, Stories260KTellsItsGreedyStory) {
  SKIP_WITHOUT_DATA("models/stories260K-hf/greedy.json");
  const auto loaded = Load(testing::TestData("models/stories260K-hf"));
  ASSERT_NE(loaded, nullptr);
  std::ifstream file(testing::TestData("models/stories260K-hf/greedy.json"));
  const nlohmann::json story = nlohmann::json::parse(file);
  ExpectGreedy(*loaded, story["greedy_ids"].get<std::vector<int64_t>>(), 1);
}

}  // namespace
}  // namespace tandem::model
