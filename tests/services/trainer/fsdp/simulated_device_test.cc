// Training on simulated devices (tests/simulator): the CPU's losses under random delays, no access
// out of order, and every wait of the pass is needed: without it the simulator names the two
// operations that then race.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "services/trainer/fsdp/sharded_transformer.h"
#include "services/trainer/fsdp/state_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/forgetful_device.h"
#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/simulator/accelerator.h"
#include "tests/simulator/nccl.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::ForgetfulDevice;
using ::tandem::testing::SimulatedAccelerator;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 2;
constexpr int kSteps = 3;
constexpr int kMicroBatches = 2;

using Curve = std::vector<double>;  // losses and gradient norms, step by step, of one rank
using Curves = std::vector<Curve>;  // by rank

struct Setting {
  at::ScalarType dtype = at::kFloat;
  at::ScalarType reduce_dtype = at::kFloat;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  bool reshard_after_forward = true;
};

ShardedModelOptions OptionsOf(const Setting& setting, const comm::DeviceMesh& mesh) {
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.mesh = &mesh;
  options.compute_dtype = setting.dtype;
  options.reduce_dtype = setting.reduce_dtype;
  options.activation_checkpointing = setting.checkpointing;
  options.reshard_after_forward = setting.reshard_after_forward;
  return options;
}

// A step's first micro-batch is empty on rank 1: it copies nothing to its device, so nothing on the
// way waits for the optimizer. `damaged`: without a wait ranks may read anything, disagree and fail;
// the first error then ends the training.
Curve Train(ShardedTransformer& model, const comm::DeviceMesh& mesh, bool damaged = false) {
  SetParameters(model, 11);
  AdamW optimizer({.weight_decay = 0.1}, model, mesh);
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    const auto sequences = RandomSequences(3, 40, SmallSpec().vocab_size, 100 + step);
    std::vector<PackedBatch> batches = Deal(sequences, mesh.rank(), kRanks, kMicroBatches);
    std::reverse(batches.begin(), batches.end());
    for (const PackedBatch& batch : batches) {
      const auto loss = model.ForwardBackward(batch, &TestLoss);
      if (damaged && !loss.ok()) return curve;
      EXPECT_TRUE(loss.ok()) << loss.status();
      curve.push_back(loss.ok() ? *loss : NAN);
    }
    const auto result = optimizer.Step(1e-2);
    if (damaged && !result.ok()) return curve;
    EXPECT_TRUE(result.ok()) << result.status();
    curve.push_back(result.ok() ? result->grad_norm : NAN);
  }
  return curve;
}

Curves TrainOnCpu(const Setting& setting) {
  Curves curves(kRanks);
  testing::LocalWorld world(kRanks);
  world.Run([&](comm::ProcessGroup& group) {
    const comm::DeviceMesh mesh(group);
    ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", at::kCPU));
    ASSERT_OK_AND_ASSIGN(auto device, device::Device::Create(at::kCPU));
    ShardedTransformer model(OptionsOf(setting, mesh), device, std::move(memory));
    curves[group.rank()] = Train(model, mesh);
  });
  return curves;
}

using Forgets = std::function<bool(absl::string_view what)>;

// `forgets`: waits that are left out.
Curves TrainSimulated(const Setting& setting, const Forgets& forgets = nullptr) {
  Curves curves(kRanks);
  std::vector<std::shared_ptr<device::Device>> devices(kRanks);
  const bool damaged = forgets != nullptr;
  testing::SimulatedNcclWorld world(kRanks, damaged ? absl::Seconds(10) : absl::Minutes(2));
  world.Run(
      [&](comm::ProcessGroup& group) {
        const comm::DeviceMesh mesh(group);
        ShardedModelOptions options = OptionsOf(setting, mesh);
        const std::shared_ptr<device::Device>& device = devices[group.rank()];
        options.device = device->device();
        ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", options.device));
        ShardedTransformer model(options, device, std::move(memory));
        curves[group.rank()] = Train(model, mesh, damaged);
      },
      [&](c10::Device place) {
        std::shared_ptr<device::Device> device = device::Device::Create(place).value();
        if (forgets != nullptr) {
          device = std::make_shared<ForgetfulDevice>(std::move(device), forgets);
        }
        return devices[place.index()] = device;
      });
  return curves;
}

void ExpectClose(const Curves& actual, const Curves& expected, double tolerance) {
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(actual[rank].size(), expected[rank].size());
    for (size_t i = 0; i < expected[rank].size(); ++i) {
      EXPECT_NEAR(actual[rank][i], expected[rank][i],
                  tolerance * std::max(1.0, std::abs(expected[rank][i])))
          << "rank " << rank << ", number " << i;
    }
  }
}

class SimulatedTraining : public ::testing::TestWithParam<Setting> {
 protected:
  // Registers the devices before the CPU's first backward pass.
  void SetUp() override { SimulatedAccelerator::Get(); }
};
INSTANTIATE_TEST_SUITE_P(
    Settings, SimulatedTraining,
    ::testing::Values(Setting{}, Setting{.checkpointing = ActivationCheckpointing::kFull},
                      Setting{.checkpointing = ActivationCheckpointing::kSelective,
                              .reshard_after_forward = false},
                      Setting{.dtype = at::kBFloat16, .reduce_dtype = at::kBFloat16}));

TEST_P(SimulatedTraining, HasTheCpusLossesWhateverTheDelays) {
  const Curves expected = TrainOnCpu(GetParam());
  // On a device bfloat16 is rounded after every operator, in the CPU's fused kernels at their end.
  const double tolerance = GetParam().dtype == at::kFloat ? 2e-5 : 0.05;
  Curves first;
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    SimulatedAccelerator::Get().Restart({.seed = seed});
    const Curves curves = TrainSimulated(GetParam());
    EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty());
    ExpectClose(curves, expected, tolerance);
    if (first.empty()) first = curves;
    EXPECT_EQ(curves, first) << "other delays, other bits";
  }
}

struct Wait {
  const char* name;
  Forgets is_it;
  const char* who_races;
  Setting setting = {};
};

class SimulatedOmission : public ::testing::TestWithParam<Wait> {};
INSTANTIATE_TEST_SUITE_P(
    Waits, SimulatedOmission,
    ::testing::Values(
        // The allocator gives a fresh buffer memory that queued compute still uses. Units that stay
        // gathered get fresh buffers while their forward pass runs.
        Wait{"FreshBuffer",
             [](absl::string_view what) { return what == kFreshBuffer; },
             "all_gather",
             {.checkpointing = ActivationCheckpointing::kFull, .reshard_after_forward = false}},
        // The optimizer still writes the shards that are gathered.
        Wait{"ShardsWritten", [](absl::string_view what) { return what == kShardsWritten; },
             "all_gather"},
        Wait{"ReleasedBuffer", [](absl::string_view what) { return what == kReleasedBuffer; },
             "all_gather"},
        Wait{"GradientsLaid", [](absl::string_view what) { return what == kGradientsLaid; },
             "reduce_scatter"},
        Wait{"SideStreamBeforeNccl",
             [](absl::string_view what) { return what == "work before a collective"; },
             "all_gather"},
        Wait{"EndOfAGather",
             [](absl::string_view what) { return absl::StrContains(what, "all_gather"); },
             "all_gather"},
        Wait{"EndOfAReduction",
             [](absl::string_view what) { return absl::StrContains(what, "reduce_scatter"); },
             "reduce_scatter"},
        Wait{"EndOfTheNormsSum",
             [](absl::string_view what) { return absl::StrContains(what, "all_reduce"); },
             "all_reduce"}),
    [](const auto& info) { return info.param.name; });

TEST_P(SimulatedOmission, IsFound) {
  SimulatedAccelerator::Get().Restart({.seed = 5});
  TrainSimulated(GetParam().setting, GetParam().is_it);
  EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(),
              Contains(::testing::AllOf(HasSubstr(GetParam().who_races),
                                        HasSubstr("is not ordered after"))));
}

}  // namespace
}  // namespace tandem::trainer
