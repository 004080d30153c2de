// What LibTorch allocates while a rank trains, held against what the plan predicts.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_FSDP_TRAINING_MEMORY_H_
#define TANDEM_TESTS_SERVICES_TRAINER_FSDP_TRAINING_MEMORY_H_

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "services/trainer/data/packed_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::trainer {

// The peak, in bytes, over two steps of a model with random weights on one rank. `make_batch` is called
// once, when the model exists.
inline int64_t TrainingPeak(ShardedModelOptions options,
                            const std::function<PackedBatch()>& make_batch) {
  TensorMemory::Install();
  const int64_t before = TensorMemory::current_bytes();
  TensorMemory::ResetPeak();
  testing::LocalMesh world({});
  world.Run([&](const comm::DeviceMesh& mesh) {
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(const auto model, ShardedModel::Create(options));
    ASSERT_OK(model->RandomInit(/*seed=*/3));
    AdamW optimizer({}, *model, mesh);
    const PackedBatch batch = make_batch();
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

inline void ExpectPredicted(const plan::MemorySnapshot& predicted, int64_t measured,
                            double tolerance) {
  EXPECT_NEAR(static_cast<double>(predicted.total()) / static_cast<double>(measured), 1.0,
              tolerance)
      << predicted.total() << " in " << predicted.place << ", of " << measured;
}

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_FSDP_TRAINING_MEMORY_H_
