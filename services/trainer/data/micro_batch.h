// MicroBatch: sequences packed for the model, with the losses' inputs for each predicted token, row
// by row in the same order.
#ifndef TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_H_
#define TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "services/trainer/data/packed_batch.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

struct MicroBatch {
  PackedBatch packed;
  at::Tensor sequence_index;  // int64 [num_rows], into TrainingBatch::sequences
  // float32 [num_rows] each:
  at::Tensor loss_weights;      // weight of each token's loss in the minimised sum
  at::Tensor advantages;        // 0 where the batch has none
  at::Tensor rollout_logprobs;  // NaN where the rollout gave none
  // Undefined if the batch does not have them:
  at::Tensor old_logprobs;
  at::Tensor ref_logprobs;
  at::Tensor teacher_logprobs;
  at::Tensor importance_weights;
  at::Tensor selected;  // see Sequence
  at::Tensor values;    // the critic's, at the step's start
  at::Tensor returns;   // the critic's targets

  int64_t num_rows() const { return packed.rows.numel(); }
};

// Packs the sequences `indices` of the batch, on the CPU. token_weights: the weight of one token,
// for each sequence of the batch (see algorithm/loss_aggregation.h). An empty list gives an empty
// micro-batch.
MicroBatch PackMicroBatch(const TrainingBatch& batch, absl::Span<const int64_t> indices,
                          absl::Span<const double> token_weights);

// Gives a micro-batch that PackMicroBatch() made of the sequences `indices` their teacher's likeliest
// tokens as soft targets, weighted with its probabilities. Every sequence with a token to train on has
// as many of them for each.
void AddTeacherTargets(const TrainingBatch& batch, absl::Span<const int64_t> indices,
                       MicroBatch& micro_batch);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_H_
