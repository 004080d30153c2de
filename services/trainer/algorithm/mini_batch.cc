#include "services/trainer/algorithm/mini_batch.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "services/trainer/data/micro_batch_plan.h"

namespace tandem::trainer {

std::vector<MiniBatch> SplitBatch(const TrainingBatch& batch, const MiniBatchOptions& options,
                                  const comm::DeviceMesh& mesh) {
  const int64_t groups_each =
      options.groups_each > 0 ? options.groups_each : std::max<int64_t>(1, batch.num_groups);
  std::vector<std::vector<int64_t>> members((batch.num_groups + groups_each - 1) / groups_each);
  for (int64_t i = 0; i < static_cast<int64_t>(batch.sequences.size()); ++i) {
    members[batch.sequences[i].group / groups_each].push_back(i);
  }

  std::vector<MiniBatch> mini_batches;
  for (const std::vector<int64_t>& indices : members) {
    MiniBatch mini_batch;
    std::vector<int64_t> num_trained, num_input, groups;
    for (int64_t i : indices) {
      const Sequence& sequence = batch.sequences[i];
      num_trained.push_back(static_cast<int64_t>(sequence.trained.size()));
      num_input.push_back(sequence.num_input_tokens());
      if (options.groups_together) groups.push_back(sequence.group);
      mini_batch.num_tokens += static_cast<double>(sequence.trained.size());
      mini_batch.num_sequences += sequence.trained.empty() ? 0 : 1;
    }
    if (mini_batch.num_tokens == 0) continue;
    const std::vector<double> weights =
        TokenWeights(options.aggregation, num_trained, options.loss_scale);
    std::vector<double> weight_of(batch.sequences.size(), 0.0);
    for (size_t i = 0; i < indices.size(); ++i) weight_of[indices[i]] = weights[i];

    const double num_input_tokens = std::accumulate(num_input.begin(), num_input.end(), 0.0);
    const MicroBatchPlan plan = PlanMicroBatches(num_input, mesh.num_data_ranks(),
                                                 options.max_tokens_per_micro_batch, groups);
    for (const std::vector<int64_t>& planned : plan[mesh.data_rank()]) {
      std::vector<int64_t> packed;
      for (int64_t i : planned) packed.push_back(indices[i]);
      MicroBatch& micro_batch =
          mini_batch.micro_batches.emplace_back(PackMicroBatch(batch, packed, weight_of));
      if (options.teacher_targets != TeacherTargets::kNone) {
        AddTeacherTargets(batch, packed, micro_batch);
        micro_batch.packed.soft_targets_only = options.teacher_targets == TeacherTargets::kOnly;
      }
      micro_batch.packed.update_tokens = num_input_tokens;
    }
    mini_batches.push_back(std::move(mini_batch));
  }
  return mini_batches;
}

}  // namespace tandem::trainer
