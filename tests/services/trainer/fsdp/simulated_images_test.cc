// Training on prompts with images on simulated devices (tests/simulator): the CPU's losses under random
// delays, and no access out of order, with the vision tower frozen and trained.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "services/trainer/fsdp/sharded_transformer.h"
#include "services/trainer/fsdp/state_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/fsdp/golden_images.h"
#include "tests/simulator/accelerator.h"
#include "tests/simulator/nccl.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::SimulatedAccelerator;
using ::testing::IsEmpty;

constexpr int kRanks = 2;
constexpr int kSteps = 2;

using Curve = std::vector<double>;  // losses and gradient norms, step by step, of one rank

struct Setting {
  at::ScalarType dtype = at::kFloat;
  bool trains_tower = true;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
};

class SimulatedImages : public ::testing::TestWithParam<std::string> {
 protected:
  // Registers the devices before the CPU's first backward pass.
  void SetUp() override { SimulatedAccelerator::Get(); }

  ShardedModelOptions Options(const Setting& setting, const comm::DeviceMesh& mesh) const {
    ShardedModelOptions options;
    options.spec = golden_.spec;
    options.mesh = &mesh;
    options.unit_limits.trains_vision = setting.trains_tower;
    options.compute_dtype = setting.dtype;
    options.activation_checkpointing = setting.checkpointing;
    return options;
  }

  Curve Train(ShardedTransformer& model, const comm::DeviceMesh& mesh) {
    EXPECT_OK(model.RandomInit(/*seed=*/5));
    AdamW optimizer({.vision_lr_ratio = 0.5}, model, mesh);
    const TrainingBatch batch = golden_.Batch();
    const auto predicted = static_cast<double>(batch.num_trained_tokens());
    const auto loss = [&](const model::LogProbs& out) -> at::Tensor {
      return -out.logprobs.sum() / predicted;
    };
    Curve curve;
    for (int step = 0; step < kSteps; ++step) {
      const auto value =
          model.ForwardBackward(GoldenImages::Part(batch, mesh.rank(), kRanks), loss);
      EXPECT_OK(value.status());
      curve.push_back(value.value_or(NAN));
      const auto result = optimizer.Step(1e-3);
      EXPECT_OK(result.status());
      curve.push_back(result.ok() ? result->grad_norm : NAN);
    }
    const EncodedImages encoded = model.TakeEncodedImages();
    EXPECT_GT(encoded.num_images, 0);
    EXPECT_GT(encoded.seconds, 0);
    return curve;
  }

  std::vector<Curve> TrainOnCpu(const Setting& setting) {
    std::vector<Curve> curves(kRanks);
    testing::LocalWorld world(kRanks);
    world.Run([&](comm::ProcessGroup& group) {
      const comm::DeviceMesh mesh(group);
      ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", at::kCPU));
      ASSERT_OK_AND_ASSIGN(auto device, device::Device::Create(at::kCPU));
      ShardedTransformer model(Options(setting, mesh), device, std::move(memory));
      curves[group.rank()] = Train(model, mesh);
    });
    return curves;
  }

  std::vector<Curve> TrainSimulated(const Setting& setting) {
    std::vector<Curve> curves(kRanks);
    std::vector<std::shared_ptr<device::Device>> devices(kRanks);
    testing::SimulatedNcclWorld world(kRanks, absl::Minutes(2));
    world.Run(
        [&](comm::ProcessGroup& group) {
          const comm::DeviceMesh mesh(group);
          ShardedModelOptions options = Options(setting, mesh);
          const std::shared_ptr<device::Device>& device = devices[group.rank()];
          options.device = device->device();
          ASSERT_OK_AND_ASSIGN(auto memory,
                               StateMemory::Create(Offload::kNone, "", options.device));
          ShardedTransformer model(options, device, std::move(memory));
          curves[group.rank()] = Train(model, mesh);
        },
        [&](c10::Device place) {
          return devices[place.index()] = device::Device::Create(place).value();
        });
    return curves;
  }

  GoldenImages golden_{GetParam()};
};

TEST_P(SimulatedImages, HaveTheCpusLossesWhateverTheDelays) {
  uint64_t seed = 0;
  for (const Setting& setting : {Setting{}, Setting{.trains_tower = false},
                                 Setting{.checkpointing = ActivationCheckpointing::kFull},
                                 Setting{.dtype = at::kBFloat16}}) {
    SCOPED_TRACE(++seed);
    const std::vector<Curve> expected = TrainOnCpu(setting);
    SimulatedAccelerator::Get().Restart({.seed = seed});
    const std::vector<Curve> found = TrainSimulated(setting);
    EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty());
    // On a device bfloat16 is rounded after every operator, in the CPU's fused kernels at their end.
    const double tolerance = setting.dtype == at::kFloat ? 5e-5 : 0.1;
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(found[rank].size(), expected[rank].size());
      for (size_t i = 0; i < expected[rank].size(); ++i) {
        EXPECT_NEAR(found[rank][i], expected[rank][i],
                    tolerance * std::max(1.0, std::abs(expected[rank][i])))
            << "rank " << rank << ", number " << i;
      }
    }
  }
}

// Windows, deepstack and learned positions, lines of placeholders, tokens that see ahead, canvases.
INSTANTIATE_TEST_SUITE_P(Models, SimulatedImages,
                         ::testing::Values("qwen2-5-vl", "qwen3-vl", "mistral3", "gemma3",
                                           "internvl-norms", "llava-onevision-shrunk"),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

}  // namespace
}  // namespace tandem::trainer
