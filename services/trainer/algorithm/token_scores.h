// Scores every trained-on token of a batch with a model, on every rank.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_TOKEN_SCORES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_TOKEN_SCORES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/data/packed_batch.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// Returns one value per row of a batch, float [num_rows]; collective among the ranks that share a
// model.
using RowScorer = std::function<absl::StatusOr<at::Tensor>(const PackedBatch&)>;

// Spreads the sequences over the ranks in micro-batches of at most `max_tokens`, scores them, and
// gathers the results: for each sequence, one value for each of `trained`. Collective; the same on
// every rank. Errors are those of the scorer and of the collective. `device` is the one on which
// the mesh moves tensors.
absl::StatusOr<std::vector<std::vector<float>>> ScoreTokens(const TrainingBatch& batch,
                                                            const comm::DeviceMesh& mesh,
                                                            at::Device device, int64_t max_tokens,
                                                            const RowScorer& scorer);

// The same for scorers that return several values per row: float [num_rows] each, `num_scores` of
// them. Returns them one after another.
using RowScorers = std::function<absl::StatusOr<std::vector<at::Tensor>>(const PackedBatch&)>;
absl::StatusOr<std::vector<std::vector<std::vector<float>>>> ScoreTokensBySeveral(
    const TrainingBatch& batch, const comm::DeviceMesh& mesh, at::Device device, int64_t max_tokens,
    int64_t num_scores, const RowScorers& scorer);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_TOKEN_SCORES_H_
