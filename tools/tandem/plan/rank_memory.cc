#include "tools/tandem/plan/rank_memory.h"

#include <algorithm>

#include "common/model/images/pixel_cache.h"
#include "tools/tandem/plan/image_load.h"
#include "tools/tandem/plan/sharded_memory.h"

namespace tandem::plan {
namespace {

// PackMicroBatch() stores for each token its id and position; for each row its index, target,
// sequence (int64), temperature, weight, advantage and the rollout's log-prob (float32).
constexpr int64_t kBytesPerToken = 2 * 8;
// With images two positions more, and the row in the token's place.
constexpr int64_t kBytesPerTokenWithImages = 3 * 8;
constexpr int64_t kBytesPerRow = 3 * 8 + 4 * 4;
// For each row, if present: log-probs of the old policy and of the reference, the critic's values
// and returns (float32).
constexpr int64_t kBytesPerRowValue = 4;

}  // namespace

RankMemory PredictRankMemory(const model::ModelSpec& spec, const setup::RankSetup& setup,
                             const RankWorkload& workload) {
  MemoryLedger ledger;
  RankMemory memory;
  {
    ShardedMemory policy(ledger, spec, setup, workload, ShardedMemory::Role::kPolicy);
    std::optional<ShardedMemory> reference, critic;
    int64_t state_bytes = policy.state_bytes();
    if (setup.has_reference) {
      reference.emplace(ledger, spec, setup, workload, ShardedMemory::Role::kReference);
      state_bytes += reference->state_bytes();
    }
    if (setup.has_critic) {
      critic.emplace(ledger, setup.critic_spec.has_value() ? *setup.critic_spec : spec, setup,
                     workload, ShardedMemory::Role::kCritic);
      state_bytes += critic->state_bytes();
    }
    memory.policy_state = policy.state_bytes();
    memory.resident = ledger.now().total();
    if (setup.offload == config::v1::OFFLOAD_CPU) memory.host_bytes = state_bytes;
    if (setup.offload == config::v1::OFFLOAD_DISK) memory.disk_bytes = state_bytes;
    memory.largest_unit = policy.largest_unit() * setup.element_bytes;

    // The leader keeps its buckets for the next update.
    Size buckets;
    if (setup.bucket_bytes > 0) {
      ledger.SetPlace("a weight update");
      buckets = ledger.Take(MemoryKind::kTransfer, 2 * setup.bucket_bytes);
    }
    const bool has_images = spec.vision.has_value() && workload.image_prompts > 0;
    const int64_t token_bytes = kBytesPerToken + (has_images ? kBytesPerTokenWithImages : 0);
    Size batch = ledger.Take(
        MemoryKind::kBatch, workload.step_tokens * token_bytes + workload.step_rows * kBytesPerRow);
    if (has_images) {
      const int64_t rows = workload.step_image_prompts * workload.rows_per_prompt;
      const int64_t patches = LoadOf(*spec.vision, rows, workload.rows_per_prompt).patches;
      memory.pixel_bytes =
          std::min(model::PixelCache::kDefaultBytes,
                   patches * spec.vision->patch_elements() * static_cast<int64_t>(sizeof(float)));
    }
    // The second step reuses the buffers of the first.
    for (int step = 0; step < 2; ++step) {
      // The models' outputs for the rows, and the returns, stay until training uses them.
      const int64_t row_values = (workload.computes_old_logprobs ? 1 : 0) +
                                 (setup.has_reference ? 1 : 0) + (setup.has_critic ? 2 : 0);
      const Size scores =
          ledger.Take(MemoryKind::kBatch, row_values * workload.step_rows * kBytesPerRowValue);
      if (workload.computes_old_logprobs) policy.Forward();
      if (reference.has_value()) reference->Forward();
      if (critic.has_value()) critic->Forward();
      // The second micro-batch adds to the sums of the first; later ones are like the second.
      const int64_t micro_batches = std::min<int64_t>(2, workload.micro_batches);
      if (critic.has_value()) {
        for (int64_t i = 0; i < micro_batches; ++i) critic->ForwardBackward();
        critic->OptimizerStep();
      }
      for (int64_t i = 0; i < micro_batches; ++i) policy.ForwardBackward();
      policy.OptimizerStep();
    }
  }
  memory.peak = ledger.peak();
  return memory;
}

}  // namespace tandem::plan
