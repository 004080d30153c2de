// Vision towers of all kinds on random images: rows and gradients against ATen's operations in float64, and
// an image's bits among others. On IMAGES_DEVICE, the CPU or a GPU, or through a GPU's kernels on a CPU
// (emulated_gpu/model.cc).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/io/model_config.h"
#include "common/model/arena.h"
#include "common/model/device_row_ops.h"
#include "common/model/numerics.h"
#include "common/model/packed_tiles.h"
#include "common/model/random_init.h"
#include "common/model/vision_tower.h"
#include "tests/support/cuda_device.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vision_golden.h"

namespace tandem::model {
namespace {

const at::Device kDevice(IMAGES_DEVICE);

// Of one and of several merged rows each way, of windows that end within an image.
std::vector<ImageGrid> GridsOf(const VisionSpec& spec) {
  if (!spec.tiles.has_value()) {
    const int64_t merge = spec.merge_size;
    return {{5 * merge, 3 * merge}, {merge, merge}, {2 * merge, 4 * merge}};
  }
  const TileSpec& tiles = *spec.tiles;
  if (tiles.canvas.has_value()) {
    // The second is shrunk, where four tiles are more than the tower's rows may be.
    const int64_t size = tiles.image_size;
    return {PackOneTile(tiles), PackTiles(tiles, {size, 2 * size - 3}, {size, 2 * size}).value(),
            PackTiles(tiles, {2 * size, 2 * size}, {2 * size, 2 * size}).value()};
  }
  return {{tiles.side, tiles.side}, {2 * tiles.side, tiles.side}};
}

class Tower : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) TANDEM_SKIP_WITHOUT_CUDA();
    // A block's threads share one thread of the CPU where kernels are emulated.
    at::set_num_threads(1);
    const std::string path = testing::VisionGolden(GetParam());
    ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(path));
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config.json, config.path));
    model_ = std::make_unique<Transformer>(spec);
    images_.grids = GridsOf(*spec.vision);
    int64_t num_patches = 0;
    for (const ImageGrid& grid : images_.grids) num_patches += grid.num_patches();
    at::manual_seed(4);
    images_.pixel_values = at::randn({num_patches, spec.vision->patch_elements()});
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }

  // Weights of one seed, rounded to `rounded_to`.
  std::unique_ptr<Arena> Weights(at::ScalarType rounded_to, at::ScalarType type,
                                 at::Device device) const {
    Arena drawn(model_->table(), at::kFloat);
    RandomInit(model_->spec(), 3, drawn);
    auto arena = std::make_unique<Arena>(model_->table(), type, device);
    for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
      const at::Tensor& parameter = drawn.Get(static_cast<int>(i));
      // Norms, biases and learned positions that are not all alike.
      const at::Tensor index = at::arange(parameter.numel(), at::kDouble);
      const at::Tensor varied =
          parameter +
          (index * 0.37 + static_cast<double>(i)).sin().mul(0.1).view(parameter.sizes());
      arena->Get(static_cast<int>(i)).copy_(varied.to(rounded_to));
      if (model_->table().parameter(static_cast<int>(i)).group == "vision") {
        arena->Get(static_cast<int>(i)).requires_grad_();
      }
    }
    return arena;
  }

  struct Results {
    at::Tensor rows;
    at::Tensor gradients;  // of the whole tower, one parameter after another
  };

  // In float64 on the CPU.
  Results Compute(const Arena& arena, const at::Tensor& pixels) const {
    const at::Tensor rows = EncodeImages(*model_, arena, {pixels, images_.grids});
    const at::Tensor weight =
        at::sin(at::arange(rows.numel(), at::kDouble)).view(rows.sizes()).to(rows.device());
    std::vector<at::Tensor> tower;
    for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
      const at::Tensor& parameter = arena.Get(static_cast<int>(i));
      if (parameter.requires_grad()) tower.push_back(parameter);
    }
    std::vector<at::Tensor> gradients =
        torch::autograd::grad({(rows.to(at::kDouble) * weight).sum()}, tower, {}, std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    std::vector<at::Tensor> flat;
    for (size_t i = 0; i < gradients.size(); ++i) {
      // Layers behind the last one that is read, and keys' biases, have none.
      if (!gradients[i].defined()) gradients[i] = at::zeros_like(tower[i]);
      flat.push_back(gradients[i].flatten().cpu().to(at::kDouble));
    }
    return {rows.detach().cpu().to(at::kDouble), at::cat(flat)};
  }

  static double RelativeDifference(const at::Tensor& found, const at::Tensor& expected) {
    return (found - expected).norm().item<double>() / expected.norm().item<double>();
  }

  std::unique_ptr<Transformer> model_;
  ImagePatches images_;
};

TEST_P(Tower, RowsAndGradientsAreThoseOfFloat64) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor pixels = images_.pixel_values.to(type).to(at::kFloat);
    const Results expected = Compute(*Weights(type, at::kDouble, at::kCPU), pixels);
    const auto arena = Weights(type, type, kDevice);
    for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
      SCOPED_TRACE(::testing::Message()
                   << c10::toString(type) << (numerics == Numerics::kFast ? ", fast" : ", exact"));
      SetNumerics(numerics);
      const Results found = Compute(*arena, pixels);
      EXPECT_LT(RelativeDifference(found.rows, expected.rows), type == at::kFloat ? 2e-5 : 3e-2);
      EXPECT_LT(RelativeDifference(found.gradients, expected.gradients),
                type == at::kFloat ? 2e-4 : 6e-2);
    }
  }
}

// And whether or not a graph is recorded, and from pixels that are on the device.
TEST_P(Tower, AnImageHasTheSameBitsAmongOthers) {
  SetNumerics(Numerics::kExact);
#ifdef TANDEM_EMULATED_GPU
  ASSERT_TRUE(device::ProductsTake({at::zeros({1, 1})}));
#endif
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto arena = Weights(type, type, kDevice);
    const at::Tensor recorded = EncodeImages(*model_, *arena, images_).detach();
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> alone;
    int64_t first = 0;
    for (const ImageGrid& grid : images_.grids) {
      const at::Tensor pixels = images_.pixel_values.narrow(0, first, grid.num_patches());
      alone.push_back(EncodeImages(*model_, *arena, {pixels.to(kDevice, type), {grid}}));
      first += grid.num_patches();
    }
    EXPECT_TRUE(at::equal(recorded, at::cat(alone))) << c10::toString(type);
  }
}

std::vector<std::string> Cases() {
#ifdef TANDEM_EMULATED_GPU  // some hundred times slower
  return {"qwen2-5-vl", "qwen3-vl", "mistral3", "gemma3", "internvl-norms", "llava-onevision"};
#else
  return testing::VisionGoldenCases();
#endif
}

INSTANTIATE_TEST_SUITE_P(Cases, Tower, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

}  // namespace
}  // namespace tandem::model
