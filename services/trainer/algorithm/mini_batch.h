// MiniBatch: one rank's view of the data of one optimizer step.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_MINI_BATCH_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_MINI_BATCH_H_

#include <cstdint>
#include <vector>

#include "common/comm/device_mesh.h"
#include "services/trainer/algorithm/loss_aggregation.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

struct MiniBatch {
  // This rank's share; equally many on every rank. Their loss_weights follow from the counts of the
  // whole mini-batch.
  std::vector<MicroBatch> micro_batches;
  // Over all ranks: trained-on tokens, and sequences that have any.
  double num_tokens = 0;
  double num_sequences = 0;
};

// Whether micro-batches have the teacher's likeliest tokens as soft targets: not, beside the tokens
// that are there, or in their place.
enum class TeacherTargets { kNone, kBeside, kOnly };

struct MiniBatchOptions {
  int64_t groups_each = 0;  // 0: one mini-batch of the whole batch
  LossAggregation aggregation = LossAggregation::kTokenMean;
  double loss_scale = 1.0;  // divisor of kSeqMeanTokenSumNorm
  int64_t max_tokens_per_micro_batch = 4096;
  bool groups_together = false;  // as far as PlanMicroBatches() can keep them
  TeacherTargets teacher_targets = TeacherTargets::kNone;
};

// Splits the batch in order of groups and never splits a group. Leaves out mini-batches without a
// token to train on. The same arguments give mini-batches of the same counts on every rank of the
// mesh.
std::vector<MiniBatch> SplitBatch(const TrainingBatch& batch, const MiniBatchOptions& options,
                                  const comm::DeviceMesh& mesh);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_MINI_BATCH_H_
