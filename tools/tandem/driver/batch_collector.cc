#include "tools/tandem/driver/batch_collector.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/evaluator.h"
#include "tools/tandem/driver/group_filter.h"
#include "tools/tandem/driver/overlong_penalty.h"

namespace tandem::driver {
namespace {

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(absl::Now() - start); }

absl::Status TooFewGroups(const config::v1::RunConfig& config, int64_t step, size_t num_groups,
                          int64_t num_filtered) {
  const int64_t batches = config.algorithm().filter_groups().max_num_gen_batches();
  return absl::FailedPreconditionError(absl::StrFormat(
      "step %d: expected %d groups whose rewards differ (data.train_batch_size); found %d in %d "
      "batches, algorithm.filter_groups.max_num_gen_batches, and %d whose rewards are all equal. "
      "The prompts are too easy or too hard for the policy: give other data, a larger rollout.n or "
      "rollout.temperature, or more batches (0 generates without end)",
      step, config.data().train_batch_size(), num_groups, batches, num_filtered));
}

}  // namespace

RolloutFleet::GenerateOptions TrainGenerateOptions(const config::v1::RunConfig& config,
                                                   int64_t step, int64_t batch) {
  RolloutFleet::GenerateOptions out{.sampling = TrainSampling(config)};
  // Another seed for each step and batch; the fleet mixes in the prompt, the engine the sample.
  out.sampling.set_seed(config.seed() * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(step) +
                        static_cast<uint64_t>(batch) * 0xD1B54A32D192ED03ULL);
  if (config.algorithm().adv_estimator() == config::v1::ADV_ESTIMATOR_REMAX) {
    out.baseline = GreedySampling(config);
  }
  return out;
}

BatchCollector::BatchCollector(const config::v1::RunConfig& config, PromptSource& prompts,
                               Rewarder& rewarder, std::function<bool()> interrupted)
    : config_(config),
      prompts_(prompts),
      rewarder_(rewarder),
      interrupted_(std::move(interrupted)) {}

absl::StatusOr<StepBatch> BatchCollector::Collect(int64_t step, const Generate& generate) {
  const config::v1::FilterGroupsConfig& filter = config_.algorithm().filter_groups();
  const int64_t wanted = config_.data().train_batch_size();
  const int64_t num_prompts = filter.enable() && config_.data().gen_batch_size() > 0
                                  ? config_.data().gen_batch_size()
                                  : wanted;
  StepBatch out;
  int64_t num_batches = 0;
  int64_t num_filtered = 0;
  int64_t num_judged = 0;
  double reward_sum = 0;
  do {
    if (filter.max_num_gen_batches() > 0 && num_batches == filter.max_num_gen_batches()) {
      return TooFewGroups(config_, step, out.groups.size(), num_filtered);
    }
    ASSIGN_OR_RETURN(std::vector<Group> groups,
                     SampleAndJudge(generate, step, num_batches, num_prompts, out.metrics));
    ++num_batches;
    num_judged += static_cast<int64_t>(groups.size());
    for (const Group& group : groups) reward_sum += group.mean_reward();
    if (filter.enable()) num_filtered += FilterGroups(filter.metric(), groups);
    std::move(groups.begin(), groups.end(), std::back_inserter(out.groups));
  } while (filter.enable() && static_cast<int64_t>(out.groups.size()) < wanted);

  const int64_t surplus = std::max<int64_t>(0, static_cast<int64_t>(out.groups.size()) - wanted);
  out.groups.resize(out.groups.size() - surplus);
  out.metrics["rollout/judged_reward/mean"] = reward_sum / static_cast<double>(num_judged);
  if (filter.enable()) {
    out.metrics["train/num_gen_batches"] = static_cast<double>(num_batches);
    out.metrics["rollout/filtered_groups"] = static_cast<double>(num_filtered);
    out.metrics["rollout/surplus_groups"] = static_cast<double>(surplus);
  }
  if (config_.reward().overlong_buffer().enable()) AddOverlongMetrics(out.groups, out.metrics);
  return out;
}

absl::StatusOr<std::vector<Group>> BatchCollector::SampleAndJudge(const Generate& generate,
                                                                  int64_t step, int64_t batch,
                                                                  int64_t num_prompts,
                                                                  Metrics& metrics) {
  if (interrupted_()) return absl::CancelledError("interrupted");
  absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(std::vector<Group> groups, generate(prompts_.Next(num_prompts),
                                                       TrainGenerateOptions(config_, step, batch)));
  metrics["timing_s/gen"] += SecondsSince(start);
  const size_t generated = groups.size();
  std::erase_if(groups, [](const Group& group) { return group.aborted(); });
  metrics["rollout/dropped_groups"] += static_cast<double>(generated - groups.size());
  if (groups.empty()) {
    return absl::AbortedError(absl::StrCat("step ", step, ": every group was aborted"));
  }
  start = absl::Now();
  const telemetry::ScopedSpan span("reward", {{"groups", groups.size()}});
  RETURN_IF_ERROR(rewarder_.Judge(groups));
  PunishOverlong(config_, groups);
  metrics["timing_s/reward"] += SecondsSince(start);
  return groups;
}

}  // namespace tandem::driver
