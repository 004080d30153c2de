// The sharded model on prompts with images: log-probs are those of the model library bit for bit, and
// training is that of plain PyTorch (tests/parity/vision_training_golden.py), with the vision tower
// frozen and trained, on one rank and on two.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "common/model/arena.h"
#include "common/model/images/prompt_images.h"
#include "common/model/load_parameters.h"
#include "common/model/packed_attention.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vision_golden.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

std::string SourceFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return source != nullptr ? source : ".";
}

json TrainingGolden() {
  return io::ReadJsonFile(SourceFolder() + "/tests/services/trainer/fsdp/vision_training.json")
      .value();
}

struct Setting {
  int ranks = 1;
  bool trains_tower = false;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  at::ScalarType dtype = at::kFloat;
};

// What training is, at every step.
struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
};

class ImageTraining : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = testing::VisionGolden(GetParam());
    ASSERT_OK_AND_ASSIGN(golden_, io::ReadJsonFile(path_ + "/golden.json"));
    ASSERT_OK_AND_ASSIGN(const json config, io::ReadJsonFile(path_ + "/config.json"));
    ASSERT_OK_AND_ASSIGN(spec_, model::ParseModelSpec(config, path_));
    ASSERT_OK_AND_ASSIGN(model::ImagePreparer preparer,
                         model::ImagePreparer::Load(path_, *spec_.vision));
    preparer_ = std::make_unique<model::ImagePreparer>(std::move(preparer));
  }

  // The rows as a rank has them: with files of its own.
  TrainingBatch Batch() const {
    TrainingBatch batch;
    batch.images = std::make_shared<BatchImages>(*preparer_, *spec_.vision);
    for (const json& row : golden_["rows"]) {
      Sequence& sequence = batch.sequences.emplace_back(MakeScoredSequence(row["ids"], 1.0));
      std::vector<int64_t> images;
      for (const std::string name : row["images"]) {
        images.push_back(batch.images->Add(io::ReadFile(path_ + "/" + name).value()));
      }
      AddImages(std::move(images), *batch.images, sequence);
    }
    return batch;
  }

  ShardedModelOptions Options(const comm::DeviceMesh& mesh, const Setting& setting) const {
    ShardedModelOptions options;
    options.spec = spec_;
    options.mesh = &mesh;
    options.unit_limits.trains_vision = setting.trains_tower;
    options.activation_checkpointing = setting.checkpointing;
    options.compute_dtype = setting.dtype;
    return options;
  }

  std::unique_ptr<ShardedModel> Load(const ShardedModelOptions& options) const {
    auto model = ShardedModel::Create(options);
    EXPECT_TRUE(model.ok()) << model.status();
    const auto folder = io::ModelFolder::Open(path_);
    EXPECT_TRUE(folder.ok()) << folder.status();
    EXPECT_OK((*model)->Load(*folder));
    return *std::move(model);
  }

  // The sequences that a rank computes.
  static PackedBatch Part(const TrainingBatch& batch, int rank, int ranks) {
    std::vector<int64_t> indices;
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      if (static_cast<int>(i) % ranks == rank) indices.push_back(static_cast<int64_t>(i));
    }
    return PackMicroBatch(batch, indices, std::vector<double>(batch.sequences.size(), 1.0)).packed;
  }

  Curve Train(const Setting& setting) const {
    const json golden = TrainingGolden();
    constexpr size_t kSteps = 4;
    Curve curve{std::vector<double>(kSteps), std::vector<double>(kSteps)};
    testing::LocalMesh world({.dp_shard = setting.ranks});
    absl::Mutex mu;
    world.Run([&](const comm::DeviceMesh& mesh) {
      const auto model = Load(Options(mesh, setting));
      AdamW optimizer(
          {.beta1 = golden["beta1"],
           .beta2 = golden["beta2"],
           .weight_decay = golden["weight_decay"],
           .grad_clip = golden["grad_clip"],
           .vision_lr_ratio = golden["vision_lr"].get<double>() / golden["lr"].get<double>()},
          *model, mesh);
      const TrainingBatch batch = Batch();
      const auto predicted = static_cast<double>(batch.num_trained_tokens());
      const auto loss = [&](const model::LogProbs& out) -> at::Tensor {
        return -out.logprobs.sum() / predicted;
      };
      for (size_t step = 0; step < kSteps; ++step) {
        ASSERT_OK_AND_ASSIGN(const double part,
                             model->ForwardBackward(Part(batch, mesh.rank(), setting.ranks), loss));
        ASSERT_OK_AND_ASSIGN(const auto result, optimizer.Step(golden["lr"].get<double>()));
        absl::MutexLock lock(&mu);
        curve.losses[step] += part;
        if (mesh.rank() == 0) curve.grad_norms[step] = result.grad_norm;
      }
    });
    return curve;
  }

  void ExpectGolden(const Setting& setting) const {
    SCOPED_TRACE(
        absl::StrCat(setting.ranks, " ranks, tower ", setting.trains_tower ? "trained" : "frozen"));
    const json golden =
        TrainingGolden()["models"][GetParam()][setting.trains_tower ? "trained" : "frozen"];
    const Curve curve = Train(setting);
    for (size_t step = 0; step < curve.losses.size(); ++step) {
      EXPECT_NEAR(curve.losses[step], golden["losses"][step].get<double>(), 5e-5) << step;
      const double norm = golden["grad_norms"][step];
      EXPECT_NEAR(curve.grad_norms[step], norm, (step == 0 ? 2e-5 : 5e-4) * norm) << step;
    }
  }

  // Log-probs of every row by the model library alone, each row on its own.
  std::vector<at::Tensor> Expected(at::ScalarType dtype) const {
    const at::NoGradGuard no_grad;
    const model::Transformer model(spec_);
    model::Arena arena(model.table(), dtype);
    EXPECT_OK(model::LoadParameters(io::ModelFolder::Open(path_).value(), arena));
    std::vector<at::Tensor> out;
    for (const json& row : golden_["rows"]) {
      const std::vector<int64_t> ids = row["ids"];
      std::vector<model::PreparedImage> images;
      std::vector<model::ImageGrid> grids;
      for (const std::string name : row["images"]) {
        images.push_back(
            preparer_->Prepare(io::ReadFile(path_ + "/" + name).value(), name).value());
        grids.push_back(images.back().grid);
      }
      const model::ImagePlaces places = model::PlaceImages(*spec_.vision, ids, grids).value();
      const at::Tensor positions = model::PositionsOf(places);
      at::Tensor x = model.Embed(arena, at::tensor(ids, at::kLong), positions[0]);
      const at::Tensor tokens = at::tensor(places.tokens, at::kLong);
      at::Tensor rows;
      if (!images.empty()) {
        std::vector<const model::PreparedImage*> pointers;
        for (const model::PreparedImage& image : images) pointers.push_back(&image);
        rows = model::EncodeImages(model, arena, model::PatchesOf(pointers));
        x = model::PutImages(x, tokens, rows);
      }
      const auto count = static_cast<int64_t>(ids.size());
      model::PackedAttention attention(at::tensor({int64_t{0}, count}));
      const model::Rotary rotary = model.MakeRotary(positions);
      for (int64_t i = 0; i < spec_.num_layers(); ++i) {
        x = model::AddImages(model.Block(arena, i, x, rotary, attention), tokens, rows, i);
      }
      const at::Tensor targets = at::tensor(ids, at::kLong).narrow(0, 1, count - 1);
      out.push_back(model
                        .HeadLogProbs(arena, model.FinalNorm(arena, x.narrow(0, 0, count - 1)),
                                      targets, at::ones({count - 1}))
                        .logprobs);
    }
    return out;
  }

  std::string path_;
  json golden_;
  model::ModelSpec spec_;
  std::unique_ptr<model::ImagePreparer> preparer_;
};

TEST_P(ImageTraining, LogProbsAreThoseOfTransformers) {
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = Load(Options(mesh, {}));
    ASSERT_OK_AND_ASSIGN(const model::LogProbs out, model->Forward(Part(Batch(), 0, 1)));
    std::vector<double> expected;
    for (const json& row : golden_["rows"]) {
      for (const double value : row["logprobs"]) expected.push_back(value);
    }
    ASSERT_EQ(out.logprobs.numel(), static_cast<int64_t>(expected.size()));
    const at::Tensor difference = out.logprobs.to(at::kDouble) - at::tensor(expected, at::kDouble);
    EXPECT_LT(difference.abs().max().item<double>(), 1e-4);
  });
}

TEST_P(ImageTraining, LogProbsHaveTheBitsOfTheModelLibrary) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor expected = at::cat(Expected(dtype));
    testing::LocalMesh world({.dp_shard = 2});
    world.Run([&](const comm::DeviceMesh& mesh) {
      const auto model = Load(Options(mesh, {.ranks = 2, .dtype = dtype}));
      ASSERT_OK_AND_ASSIGN(const model::LogProbs out, model->Forward(Part(Batch(), 0, 1)));
      EXPECT_TRUE(at::equal(out.logprobs, expected)) << c10::toString(dtype);
    });
  }
}

TEST_P(ImageTraining, SequencesWithTheSamePicturesShareTheirPrefix) {
  TrainingBatch batch = Batch();
  const Sequence alone = batch.sequences[1];
  // A sample of the same prompt that ends otherwise.
  Sequence other = alone;
  other.token_ids.back() = (other.token_ids.back() + 1) % spec_.vocab_size;
  batch.sequences = {alone, other};
  const PackedBatch both = Part(batch, 0, 1);
  EXPECT_EQ(both.image_indices.size(), 2U);  // each once
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = Load(Options(mesh, {}));
    ASSERT_OK_AND_ASSIGN(const model::LogProbs shared, model->Forward(both));
    batch.sequences = {alone};
    ASSERT_OK_AND_ASSIGN(const model::LogProbs first, model->Forward(Part(batch, 0, 1)));
    batch.sequences = {other};
    ASSERT_OK_AND_ASSIGN(const model::LogProbs second, model->Forward(Part(batch, 0, 1)));
    EXPECT_TRUE(at::equal(shared.logprobs, at::cat({first.logprobs, second.logprobs})));
  });
}

TEST_P(ImageTraining, FollowsPyTorchWithAFrozenTower) {
  ExpectGolden({.ranks = 1});
  ExpectGolden({.ranks = 2});
  ExpectGolden({.ranks = 2, .checkpointing = ActivationCheckpointing::kFull});
}

TEST_P(ImageTraining, FollowsPyTorchWithATowerThatLearnsAtItsOwnRate) {
  ExpectGolden({.ranks = 1, .trains_tower = true});
  ExpectGolden({.ranks = 2, .trains_tower = true});
  ExpectGolden(
      {.ranks = 1, .trains_tower = true, .checkpointing = ActivationCheckpointing::kSelective});
  ExpectGolden({.ranks = 2, .trains_tower = true, .checkpointing = ActivationCheckpointing::kFull});
}

TEST_P(ImageTraining, AFrozenTowerHasNoGradientsAndNoMoments) {
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = Load(Options(mesh, {}));
    AdamW optimizer({}, *model, mesh);
    const model::ParameterTable& table = model->transformer().table();
    for (size_t u = 0; u < table.units().size(); ++u) {
      const int first = table.units()[u].parameters.front();
      const bool is_vision = table.parameter(first).group == "vision";
      EXPECT_EQ(model->shards()[u].grad.defined(), !is_vision) << table.units()[u].name;
      EXPECT_EQ(optimizer.StateOf(u).empty(), is_vision) << table.units()[u].name;
    }
  });
}

TEST_P(ImageTraining, RefusesPicturesWithoutThreePositions) {
  PackedBatch batch = Part(Batch(), 0, 1);
  batch.positions = batch.positions[0];
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = Load(Options(mesh, {}));
    EXPECT_THAT(model->Forward(batch),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::HasSubstr("positions should be Long [3, ")));
  });
}

INSTANTIATE_TEST_SUITE_P(Models, ImageTraining, ::testing::ValuesIn(testing::VisionGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

}  // namespace
}  // namespace tandem::trainer
