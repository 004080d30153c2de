// The sharded model on prompts with images: log-probs are those of the model library bit for bit, and
// training is that of plain PyTorch (tests/parity/vision_training_golden.py), with the vision tower
// frozen and trained, on one rank and on two. On IMAGES_DEVICE, the CPU or a GPU, which has one rank.
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
#include "common/model/image_forms.h"
#include "common/model/images/prompt_images.h"
#include "common/model/load_parameters.h"
#include "common/model/numerics.h"
#include "common/model/parallel_fit.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/fsdp/sequence_slice.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/golden_images.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/cuda_device.h"
#include "tests/support/seen_ends.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vision_golden.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

const at::Device kDevice(IMAGES_DEVICE);

std::string SourceFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return source != nullptr ? source : ".";
}

json TrainingGolden() {
  return io::ReadJsonFile(SourceFolder() + "/tests/services/trainer/fsdp/vision_training.json")
      .value();
}

struct Setting {
  comm::MeshShape mesh;
  bool trains_tower = false;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  at::ScalarType dtype = at::kFloat;
  bool offloads = false;   // to a file
  bool is_random = false;  // weights; else those of the golden model
};

// What training is, at every step.
struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
};

class ImageTraining : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) TANDEM_SKIP_WITHOUT_CUDA();
    golden_ = std::make_unique<GoldenImages>(GetParam());
    spec_ = golden_->spec;
    const absl::Status fits = model::CheckTrainerDevice(spec_, kDevice.is_cuda());
    if (!fits.ok()) GTEST_SKIP() << fits.message();
  }
  void TearDown() override { model::SetNumerics(model::Numerics::kFast); }

  TrainingBatch Batch() const { return golden_->Batch(); }

  ShardedModelOptions Options(const comm::DeviceMesh& mesh, const Setting& setting) const {
    ShardedModelOptions options;
    options.spec = spec_;
    options.mesh = &mesh;
    options.device = kDevice;
    options.unit_limits.trains_vision = setting.trains_tower;
    options.activation_checkpointing = setting.checkpointing;
    options.compute_dtype = setting.dtype;
    if (setting.offloads) {
      options.offload = Offload::kDisk;
      options.offload_folder = scratch_.path();
    }
    return options;
  }

  std::unique_ptr<ShardedModel> Load(const ShardedModelOptions& options,
                                     bool is_random = false) const {
    auto model = ShardedModel::Create(options);
    EXPECT_TRUE(model.ok()) << model.status();
    if (is_random) {
      EXPECT_OK((*model)->RandomInit(/*seed=*/5));
      return *std::move(model);
    }
    const auto folder = io::ModelFolder::Open(golden_->path);
    EXPECT_TRUE(folder.ok()) << folder.status();
    EXPECT_OK((*model)->Load(*folder));
    return *std::move(model);
  }

  static PackedBatch Part(const TrainingBatch& batch, int rank, int ranks) {
    return GoldenImages::Part(batch, rank, ranks);
  }

  Curve Train(const Setting& setting) const {
    const json golden = TrainingGolden();
    constexpr size_t kSteps = 4;
    Curve curve{std::vector<double>(kSteps), std::vector<double>(kSteps)};
    testing::LocalMesh world(setting.mesh);
    absl::Mutex mu;
    world.Run([&](const comm::DeviceMesh& mesh) {
      const auto model = Load(Options(mesh, setting), setting.is_random);
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
        ASSERT_OK_AND_ASSIGN(
            const double part,
            model->ForwardBackward(Part(batch, mesh.data_rank(), mesh.num_data_ranks()), loss));
        ASSERT_OK_AND_ASSIGN(const auto result, optimizer.Step(golden["lr"].get<double>()));
        absl::MutexLock lock(&mu);
        // Ranks that share their sequences have the same loss.
        if (mesh.sequence().rank() == 0 && mesh.tensor().rank() == 0) curve.losses[step] += part;
        if (mesh.rank() == 0) curve.grad_norms[step] = result.grad_norm;
      }
    });
    return curve;
  }

  void ExpectGolden(const Setting& setting) const {
    if (kDevice.is_cuda() && setting.mesh.size() > 1) return;  // ranks need a GPU each
    SCOPED_TRACE(::testing::Message()
                 << "shard " << setting.mesh.dp_shard << ", sequence " << setting.mesh.sequence
                 << ", tensor " << setting.mesh.tp << (setting.offloads ? ", offloaded" : "")
                 << ", tower " << (setting.trains_tower ? "trained" : "frozen"));
    const json golden =
        TrainingGolden()["models"][GetParam()][setting.trains_tower ? "trained" : "frozen"];
    const Curve curve = Train(setting);
    for (size_t step = 0; step < curve.losses.size(); ++step) {
      EXPECT_NEAR(curve.losses[step], golden["losses"][step].get<double>(), 5e-5) << step;
      const double norm = golden["grad_norms"][step];
      // A GPU adds in other orders.
      const double tolerance = (step == 0 ? 2e-5 : 5e-4) * (kDevice.is_cuda() ? 5 : 1);
      EXPECT_NEAR(curve.grad_norms[step], norm, tolerance * norm) << step;
    }
  }

  // Log-probs of every row by the model library alone, each row on its own.
  std::vector<at::Tensor> Expected(at::ScalarType dtype) const {
    const at::NoGradGuard no_grad;
    const model::Transformer model(spec_);
    model::Arena loaded(model.table(), dtype);
    EXPECT_OK(model::LoadParameters(io::ModelFolder::Open(golden_->path).value(), loaded));
    model::Arena arena(model.table(), dtype, kDevice);
    arena.CopyFrom(loaded);
    std::vector<at::Tensor> out;
    for (const json& row : golden_->golden["rows"]) {
      const std::vector<int64_t> ids = row["ids"];
      std::vector<model::PreparedImage> images;
      std::vector<model::ImageGrid> grids;
      const std::vector<images::ImageForm> forms =
          model::FormsOf(*spec_.vision, ids, row["images"].size());
      for (const std::string name : row["images"]) {
        const images::ImageForm form = forms[images.size()];
        images.push_back(
            golden_->preparer.Prepare(io::ReadFile(golden_->path + "/" + name).value(), name, form)
                .value());
        grids.push_back(images.back().grid);
      }
      const model::ImagePlaces places = model::PlaceImages(*spec_.vision, ids, grids).value();
      const at::Tensor positions = model::PositionsOf(places).to(kDevice);
      at::Tensor x = model.Embed(arena, at::tensor(ids, at::kLong).to(kDevice), positions[0]);
      const at::Tensor tokens = at::tensor(places.tokens, at::kLong).to(kDevice);
      at::Tensor rows;
      if (!images.empty()) {
        std::vector<const model::PreparedImage*> pointers;
        for (const model::PreparedImage& image : images) pointers.push_back(&image);
        rows = model::EncodeImages(model, arena, model::PatchesOf(pointers));
        x = model::PutImages(x, tokens, rows);
      }
      const auto count = static_cast<int64_t>(ids.size());
      model::PackedAttention attention = testing::AttentionOf(*spec_.vision, places, count);
      const model::Rotary rotary = model.MakeRotary(positions);
      for (int64_t i = 0; i < spec_.num_layers(); ++i) {
        x = model::AddImages(model.Block(arena, i, x, rotary, attention), tokens, rows, i);
      }
      const at::Tensor targets = at::tensor(ids, at::kLong).narrow(0, 1, count - 1).to(kDevice);
      out.push_back(model
                        .HeadLogProbs(arena, model.FinalNorm(arena, x.narrow(0, 0, count - 1)),
                                      targets, at::ones({count - 1}).to(kDevice))
                        .logprobs);
    }
    return out;
  }

  std::unique_ptr<GoldenImages> golden_;
  model::ModelSpec spec_;
  testing::TempFolder scratch_;
};

TEST_P(ImageTraining, LogProbsAreThoseOfTransformers) {
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = Load(Options(mesh, {}));
    ASSERT_OK_AND_ASSIGN(const model::LogProbs out, model->Forward(Part(Batch(), 0, 1)));
    std::vector<double> expected;
    for (const json& row : golden_->golden["rows"]) {
      for (const double value : row["logprobs"]) expected.push_back(value);
    }
    ASSERT_EQ(out.logprobs.numel(), static_cast<int64_t>(expected.size()));
    const at::Tensor difference =
        out.logprobs.cpu().to(at::kDouble) - at::tensor(expected, at::kDouble);
    EXPECT_LT(difference.abs().max().item<double>(), 1e-4);
  });
}

TEST_P(ImageTraining, LogProbsHaveTheBitsOfTheModelLibrary) {
  model::SetNumerics(model::Numerics::kExact);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor expected = at::cat(Expected(dtype));
    testing::LocalMesh world({.dp_shard = kDevice.is_cuda() ? 1 : 2});
    world.Run([&](const comm::DeviceMesh& mesh) {
      const auto model = Load(Options(mesh, {.dtype = dtype}));
      ASSERT_OK_AND_ASSIGN(const model::LogProbs out, model->Forward(Part(Batch(), 0, 1)));
      EXPECT_TRUE(at::equal(out.logprobs, expected)) << c10::toString(dtype);
    });
  }
}

TEST_P(ImageTraining, SequencesWithTheSamePicturesShareTheirPrefix) {
  model::SetNumerics(model::Numerics::kExact);
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
  ExpectGolden({});
  ExpectGolden({.mesh = {.dp_shard = 2}});
  ExpectGolden({.mesh = {.dp_shard = 2}, .checkpointing = ActivationCheckpointing::kFull});
}

TEST_P(ImageTraining, FollowsPyTorchWithATowerThatLearnsAtItsOwnRate) {
  ExpectGolden({.trains_tower = true});
  ExpectGolden({.mesh = {.dp_shard = 2}, .trains_tower = true});
  ExpectGolden({.trains_tower = true, .checkpointing = ActivationCheckpointing::kSelective});
  ExpectGolden({.mesh = {.dp_shard = 2},
                .trains_tower = true,
                .checkpointing = ActivationCheckpointing::kFull});
}

// Each of the two ranks encodes the images that its part of the tokens shows.
TEST_P(ImageTraining, FollowsPyTorchWhereRanksShareSequences) {
  if (kDevice.is_cuda()) GTEST_SKIP() << "ranks need a GPU each";
  if (spec_.HasLinearAttention()) GTEST_SKIP() << "linear attention is refused by name";
  ExpectGolden({.mesh = {.dp_shard = 2, .sequence = 2}});
  ExpectGolden({.mesh = {.dp_shard = 2, .sequence = 2}, .trains_tower = true});
  ExpectGolden({.mesh = {.dp_shard = 2, .sequence = 2},
                .trains_tower = true,
                .checkpointing = ActivationCheckpointing::kFull});
}

// The golden models have one key-value head; these have one for each rank, and random weights.
TEST_P(ImageTraining, FollowsOneRankWhereRanksShareLayers) {
  if (kDevice.is_cuda()) GTEST_SKIP() << "ranks need a GPU each";
  for (model::LayerSpec& layer : spec_.layers) layer.attention.num_kv_heads = 2;
  for (const bool trains_tower : {false, true}) {
    const Curve expected = Train({.trains_tower = trains_tower, .is_random = true});
    const Curve found = Train({.mesh = {.tp = 2}, .trains_tower = trains_tower, .is_random = true});
    for (size_t step = 0; step < expected.losses.size(); ++step) {
      EXPECT_NEAR(found.losses[step], expected.losses[step], 1e-5) << step;
      EXPECT_NEAR(found.grad_norms[step], expected.grad_norms[step],
                  1e-4 * expected.grad_norms[step])
          << step;
    }
    EXPECT_NE(expected.losses.front(), expected.losses.back());
  }
}

TEST_P(ImageTraining, FollowsPyTorchWithItsStateInAFile) {
  if (kDevice.is_cuda()) GTEST_SKIP() << "whatever the device";
  ExpectGolden({.offloads = true});
  ExpectGolden({.trains_tower = true, .offloads = true});
  ExpectGolden({.mesh = {.dp_shard = 2}, .trains_tower = true, .offloads = true});
}

// Sequences are cut within images; padding follows the last token.
TEST_P(ImageTraining, SlicesShowTheImagesOfTheirTokens) {
  const PackedBatch batch = Part(Batch(), 0, 1);
  for (const int size : {2, 3, 7}) {
    std::vector<at::Tensor> rows, positions;
    for (int rank = 0; rank < size; ++rank) {
      const SequenceSlice slice = SliceOf(batch, rank, size);
      positions.push_back(slice.positions);
      // Rows in the slice's images, back among those of all images.
      std::vector<int64_t> firsts;
      for (const int64_t image : slice.image_indices) {
        int64_t first = 0;
        for (const int64_t before : batch.image_indices) {
          if (before == image) break;
          first += model::NumImageRows(*spec_.vision, batch.images->GridOf(before));
        }
        const int64_t count = model::NumImageRows(*spec_.vision, batch.images->GridOf(image));
        for (int64_t row = 0; row < count; ++row) firsts.push_back(first + row);
      }
      at::Tensor own = slice.image_rows.clone();
      for (int64_t i = 0; i < own.numel(); ++i) {
        const int64_t row = own[i].item<int64_t>();
        if (row >= 0) own[i] = firsts.at(static_cast<size_t>(row));
      }
      rows.push_back(own);
    }
    const int64_t tokens = batch.num_tokens();
    EXPECT_TRUE(at::equal(at::cat(rows).narrow(0, 0, tokens), batch.image_rows)) << size;
    EXPECT_TRUE(at::equal(at::cat(positions, 1).narrow(1, 0, tokens), batch.positions)) << size;
  }
  // The first of seven slices shows fewer images than the batch has.
  EXPECT_LT(SliceOf(batch, 0, 7).image_indices.size(), batch.image_indices.size());
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
