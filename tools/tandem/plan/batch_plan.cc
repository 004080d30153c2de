#include "tools/tandem/plan/batch_plan.h"

#include <algorithm>

#include "common/config/rollout_correction_spec.h"
#include "common/config/summary.h"
#include "tools/tandem/plan/ceil_divide.h"

namespace tandem::plan {

BatchPlan PlanBatch(const config::v1::RunConfig& config, const comm::MeshShape& mesh) {
  const config::BatchArithmetic arithmetic = config::ComputeBatch(config);
  BatchPlan plan;
  plan.prompts = arithmetic.prompts;
  plan.samples = arithmetic.samples;
  plan.mini_batch_samples = arithmetic.mini_batch_prompts * config.rollout().n();
  plan.optimizer_steps = arithmetic.optimizer_steps;
  plan.data_ranks = mesh.num_data_ranks();
  // Nothing depends on the last token, so the model does not process it.
  plan.longest_sequence = std::max<int64_t>(
      1, config.data().max_prompt_length() + config::LongestCompletion(config) - 1);
  plan.samples_per_rank = CeilDivide(plan.mini_batch_samples, plan.data_ranks);
  const int64_t limit = config.trainer().max_tokens_per_micro_batch();
  plan.micro_batch_samples = std::clamp<int64_t>(limit / plan.longest_sequence, 1,
                                                 std::max<int64_t>(1, plan.samples_per_rank));
  plan.micro_batches = CeilDivide(plan.samples_per_rank, plan.micro_batch_samples);
  plan.step_tokens = plan.samples * plan.longest_sequence;
  return plan;
}

RankWorkload WorkloadOf(const config::v1::RunConfig& config, const BatchPlan& batch) {
  const int64_t limit =
      std::max(config.trainer().max_tokens_per_micro_batch(), batch.longest_sequence);
  RankWorkload work;
  // Shorter samples fill a micro-batch up to its limit.
  work.tokens = std::min(limit, batch.samples_per_rank * batch.longest_sequence);
  work.longest_sequence = batch.longest_sequence;
  work.sequences = CeilDivide(work.tokens, batch.longest_sequence);
  work.rows = std::min(work.tokens, work.sequences * config::LongestCompletion(config));
  work.micro_batches = batch.micro_batches;
  const int64_t step_samples = CeilDivide(batch.samples, batch.data_ranks);
  work.step_tokens = step_samples * batch.longest_sequence;
  work.step_rows = step_samples * config::LongestCompletion(config);
  // Samples of a group stay together where they share their prompt; else each may have another one's.
  const int64_t n = std::max<int64_t>(1, config.rollout().n());
  const bool together = config.trainer().ulysses_sequence_parallel_size() <= 1;
  work.image_prompts =
      std::min({work.sequences, together ? CeilDivide(work.sequences, n) + 1 : work.sequences,
                std::max<int64_t>(1, batch.mini_batch_samples / n)});
  work.step_image_prompts = std::min<int64_t>(step_samples, batch.prompts);
  work.rows_per_prompt = config.data().max_prompt_length();
  const config::v1::RolloutCorrectionConfig& correction = config.algorithm().rollout_correction();
  const config::v1::AdvEstimator estimator = config.algorithm().adv_estimator();
  work.computes_old_logprobs = estimator == config::v1::ADV_ESTIMATOR_OPTIMAL_TOKEN_BASELINE ||
                               estimator == config::v1::ADV_ESTIMATOR_TIR_OPTIMAL_TOKEN_BASELINE ||
                               config::ResolveRolloutIs(config) != config::v1::ROLLOUT_IS_NONE ||
                               (batch.optimizer_steps > 1 && !correction.bypass_mode());
  return work;
}

RankWorkload SupervisedWorkload(int64_t sequences, int64_t length, int64_t max_tokens) {
  RankWorkload work;
  work.sequences = std::clamp<int64_t>(max_tokens / length, 1, sequences);
  work.micro_batches = CeilDivide(sequences, work.sequences);
  // PlanMicroBatches() spreads evenly.
  work.sequences = CeilDivide(sequences, work.micro_batches);
  work.tokens = work.rows = work.sequences * length;
  work.longest_sequence = length;
  work.step_tokens = work.step_rows = sequences * length;
  return work;
}

}  // namespace tandem::plan
