// What a batch looks like before anything is computed: rewards, advantages, lengths.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_BATCH_METRICS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_BATCH_METRICS_H_

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

// {prompt,response}_length/{mean,max,min}, response_length/clip_ratio (the share of completions
// that ended at the limit of tokens), perf/total_num_tokens.
void AddLengthMetrics(const TrainingBatch& batch, Metrics& metrics);

// critic/{score,rewards,advantages}/{mean,max,min}: scores of completions as judged, rewards less
// the price of divergence, advantages of tokens that are trained on.
void AddRewardMetrics(const TrainingBatch& batch, Metrics& metrics);

// critic/{values,returns}/{mean,max,min} of tokens that are trained on, and
// critic/vf_explained_var, 1 - var(returns - values) / (var(returns) + 1e-5), as verl: how much of
// the returns the values knew. For batches that a critic has scored.
void AddValueMetrics(const TrainingBatch& batch, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_BATCH_METRICS_H_
