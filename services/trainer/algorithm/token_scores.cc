#include "services/trainer/algorithm/token_scores.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/status/status_macros.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/data/micro_batch_plan.h"
#include "services/trainer/data/shared_prefix.h"

namespace tandem::trainer {

absl::StatusOr<std::vector<std::vector<float>>> ScoreTokens(const TrainingBatch& batch,
                                                            const comm::DeviceMesh& mesh,
                                                            at::Device device, int64_t max_tokens,
                                                            const RowScorer& scorer) {
  const auto one = [&](const PackedBatch& packed) -> absl::StatusOr<std::vector<at::Tensor>> {
    ASSIGN_OR_RETURN(at::Tensor scores, scorer(packed));
    return std::vector<at::Tensor>{std::move(scores)};
  };
  ASSIGN_OR_RETURN(auto scores, ScoreTokensBySeveral(batch, mesh, device, max_tokens, 1, one));
  return std::move(scores[0]);
}

absl::StatusOr<std::vector<std::vector<std::vector<float>>>> ScoreTokensBySeveral(
    const TrainingBatch& batch, const comm::DeviceMesh& mesh, at::Device device, int64_t max_tokens,
    int64_t num_scores, const RowScorers& scorer) {
  const bool shares = SharesPrefixes(device, mesh.sequence().size());
  std::vector<int64_t> lengths, groups, first_row;
  int64_t num_rows = 0;
  for (const Sequence& sequence : batch.sequences) {
    lengths.push_back(sequence.num_input_tokens());
    if (shares) groups.push_back(sequence.group);
    first_row.push_back(num_rows);
    num_rows += static_cast<int64_t>(sequence.trained.size());
  }
  const std::vector<double> no_weights(batch.sequences.size(), 0.0);
  const MicroBatchPlan plan = PlanMicroBatches(lengths, mesh.num_data_ranks(), max_tokens, groups);

  // Every rank fills in the rows that it computes; the sum over ranks has them all.
  at::Tensor rows = at::zeros({num_scores, std::max<int64_t>(1, num_rows)}, at::kFloat);
  for (const std::vector<int64_t>& indices : plan[mesh.data_rank()]) {
    const MicroBatch micro_batch = PackMicroBatch(batch, indices, no_weights);
    ASSIGN_OR_RETURN(const std::vector<at::Tensor> scores, scorer(micro_batch.packed));
    if (micro_batch.num_rows() == 0) continue;
    for (int64_t s = 0; s < num_scores; ++s) {
      const at::Tensor values = scores[s].to(at::kCPU, at::kFloat);
      int64_t at = 0;
      for (int64_t index : indices) {
        const auto count = static_cast<int64_t>(batch.sequences[index].trained.size());
        rows[s].narrow(0, first_row[index], count).copy_(values.narrow(0, at, count));
        at += count;
      }
    }
  }
  if (!mesh.leads_data_rank()) rows.zero_();  // its leader has the same
  rows = rows.to(device);
  ASSIGN_OR_RETURN(auto work, mesh.world().AllReduce(rows, comm::ReduceOp::kSum, "token scores"));
  RETURN_IF_ERROR(work->Wait());
  rows = rows.to(at::kCPU);

  std::vector<std::vector<std::vector<float>>> out(num_scores);
  for (int64_t s = 0; s < num_scores; ++s) {
    const float* values = rows.const_data_ptr<float>() + s * rows.size(1);
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      const float* begin = values + first_row[i];
      out[s].emplace_back(begin, begin + batch.sequences[i].trained.size());
    }
  }
  return out;
}

}  // namespace tandem::trainer
