// Metrics of a batch before training: rewards, advantages, lengths.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_BATCH_METRICS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_BATCH_METRICS_H_

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// {prompt,response}_length/{mean,max,min}, response_length/clip_ratio (the share of completions
// that ended at the token limit), perf/total_num_tokens.
void AddLengthMetrics(const TrainingBatch& batch, Metrics& metrics);

// critic/{score,rewards,advantages}/{mean,max,min}: scores are the rewards as judged, rewards have
// the KL penalty subtracted, advantages are those of trained-on tokens.
void AddRewardMetrics(const TrainingBatch& batch, Metrics& metrics);

// critic/{values,returns}/{mean,max,min} of trained-on tokens, and critic/vf_explained_var, 1 -
// var(returns - values) / (var(returns) + 1e-5), as in verl: the share of the returns' variance
// that the values explain. For batches that a critic has scored.
void AddValueMetrics(const TrainingBatch& batch, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_BATCH_METRICS_H_
