// Budgets of a device's work, counted on simulated devices (tests/simulator): operations that are
// queued, waits of the host, and bytes between host and device. More than the table says is a loss
// that no other test shows; raise an entry only with a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/trainer/fsdp/sharded_transformer.h"
#include "services/trainer/fsdp/state_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/simulator/accelerator.h"
#include "tests/simulator/nccl.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::SimulatedAccelerator;
using Counts = SimulatedAccelerator::Counts;

constexpr int kRanks = 2;
constexpr int kSequences = 4;  // of a micro-batch
constexpr int kTokens = 40;    // of a sequence, at most

// Of one rank. Operations are ATen's: a GPU's fused kernels take fewer.
struct Budget {
  const char* what;
  int64_t operations;
  int64_t host_waits;
  int64_t host_bytes;
};
constexpr Budget kBudgets[] = {
    {"micro-batch", 1195, 0, 4100},
    {"the next micro-batch", 1200, 0, 4100},
    {"optimizer step", 40, 1, 8},
};

Counts Difference(const Counts& after, const Counts& before) {
  return {after.operations - before.operations, after.host_waits - before.host_waits,
          after.host_bytes - before.host_bytes};
}

// What each phase of the second step takes, by rank.
std::vector<std::vector<Counts>> CountPhases() {
  std::vector<std::vector<Counts>> phases(kRanks);
  std::vector<std::shared_ptr<device::Device>> devices(kRanks);
  testing::SimulatedNcclWorld world(kRanks);
  world.Run(
      [&](comm::ProcessGroup& group) {
        const int rank = group.rank();
        const comm::DeviceMesh mesh(group);
        ShardedModelOptions options;
        options.spec = SmallSpec();
        options.mesh = &mesh;
        options.compute_dtype = at::kBFloat16;
        options.device = devices[rank]->device();
        ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", options.device));
        ShardedTransformer model(options, devices[rank], std::move(memory));
        SetParameters(model, 11);
        AdamW optimizer({.weight_decay = 0.1}, model, mesh);
        for (int step = 0; step < 2; ++step) {
          phases[rank].clear();
          Counts before = SimulatedAccelerator::Get().CountsOf(rank);
          const auto count = [&] {
            const Counts now = SimulatedAccelerator::Get().CountsOf(rank);
            phases[rank].push_back(Difference(now, before));
            before = now;
          };
          const auto sequences =
              RandomSequences(2 * kRanks * kSequences, kTokens, SmallSpec().vocab_size, 100);
          for (const PackedBatch& batch : Deal(sequences, rank, kRanks, 2)) {
            ASSERT_OK(model.QueueForwardBackward(batch, &TestLoss).status());
            count();
          }
          ASSERT_OK(optimizer.Step(1e-2).status());
          count();
        }
      },
      [&](c10::Device place) {
        return devices[place.index()] = device::Device::Create(place).value();
      });
  return phases;
}

TEST(DeviceBudget, AStepKeepsIt) {
  SimulatedAccelerator::Get().Restart({.seed = 1});
  const std::vector<std::vector<Counts>> phases = CountPhases();
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(phases[rank].size(), std::size(kBudgets));
    for (size_t i = 0; i < std::size(kBudgets); ++i) {
      SCOPED_TRACE(std::string(kBudgets[i].what) + ", rank " + std::to_string(rank));
      EXPECT_LE(phases[rank][i].operations, kBudgets[i].operations);
      EXPECT_LE(phases[rank][i].host_waits, kBudgets[i].host_waits);
      EXPECT_LE(phases[rank][i].host_bytes, kBudgets[i].host_bytes);
      // A budget that is never used up hides the next loss.
      EXPECT_GE(phases[rank][i].operations, kBudgets[i].operations * 9 / 10);
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
