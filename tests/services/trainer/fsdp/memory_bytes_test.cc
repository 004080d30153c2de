// What a rank holds of a model's state falls as 1/ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/synchronization/mutex.h"
#include "common/host/process_memory.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/state_memory.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

TEST(MemoryBytes, OfShardsAndMomentsFallAsTheRanksGrow) {
  const model::ModelSpec spec = SmallSpec();
  TensorMemory::Install();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int ranks : {1, 2, 4, 8}) {
      testing::LocalWorld world(ranks);
      absl::Mutex mu;
      std::vector<std::unique_ptr<ShardedModel>> models;
      std::vector<std::unique_ptr<AdamW>> optimizers;
      std::vector<std::unique_ptr<comm::DeviceMesh>> meshes;
      std::vector<std::unique_ptr<comm::ProcessGroup>> groups;
      const int64_t before = TensorMemory::current_bytes();
      for (int rank = 0; rank < ranks; ++rank) {
        groups.push_back(world.Join(rank));
        meshes.push_back(std::make_unique<comm::DeviceMesh>(*groups.back()));
        ShardedModelOptions options;
        options.spec = spec;
        options.compute_dtype = dtype;
        options.mesh = meshes.back().get();
        ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
        models.push_back(std::move(model));
        optimizers.push_back(
            std::make_unique<AdamW>(AdamWOptions(), *models.back(), *meshes.back()));
      }
      const model::ParameterTable& table = models[0]->transformer().table();
      const int64_t parameters = table.num_parameters();
      // Every unit is padded to a multiple of the ranks.
      const int64_t padding = static_cast<int64_t>(table.units().size()) * (ranks - 1);
      const int64_t each = dtype == at::kFloat ? 4 : 6;
      int64_t state = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const MemoryBytes bytes = models[rank]->memory_bytes();
        EXPECT_GE(bytes.parameters * ranks, parameters * each);
        EXPECT_LE(bytes.parameters * ranks, (parameters + padding) * each);
        EXPECT_GE(bytes.gradients * ranks, parameters * 4);
        EXPECT_LE(bytes.gradients * ranks, (parameters + padding) * 4);
        EXPECT_EQ(optimizers[rank]->state_bytes(), 2 * bytes.gradients);
        EXPECT_EQ(bytes.offloaded, 0);
        state += bytes.parameters + bytes.gradients + optimizers[rank]->state_bytes();
      }
      // What is said is what the allocator gave, but for tables of frequencies.
      const int64_t allocated = TensorMemory::current_bytes() - before;
      EXPECT_GE(allocated, state);
      EXPECT_LT(allocated - state, 1024 * ranks);
    }
  }
}

TEST(MemoryBytes, OfStateThatNobodyHasWrittenAreCountedAndTakeNoMemory) {
  const int64_t numel = int64_t{64} << 18;  // 64 MiB
  const int64_t bytes = numel * static_cast<int64_t>(sizeof(float));
  ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", at::kCPU));
  const int64_t counted = TensorMemory::current_bytes();
  const int64_t resident = host::ResidentBytes();
  {
    at::Tensor moments = memory->Zeros(numel);
    EXPECT_EQ(TensorMemory::current_bytes(), counted + bytes);
    EXPECT_LT(host::ResidentBytes(), resident + bytes / 8);

    EXPECT_EQ(moments.narrow(0, numel / 2, 1000).abs().max().item<float>(), 0.0f);
    moments.fill_(1);
    EXPECT_GT(host::ResidentBytes(), resident + bytes / 2);
  }
  EXPECT_EQ(TensorMemory::current_bytes(), counted);
  EXPECT_LT(host::ResidentBytes(), resident + bytes / 8);
}

}  // namespace
}  // namespace tandem::trainer
