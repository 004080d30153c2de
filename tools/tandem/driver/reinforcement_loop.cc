// Reinforcement learning: generate, judge, train, publish. `sync` and `one_step_off` generate the
// steps' batches one after another; `async` samples without pause and takes batches from the groups
// that are ready.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/batch_collector.h"
#include "tools/tandem/driver/continuous_generation.h"
#include "tools/tandem/driver/generation.h"
#include "tools/tandem/driver/look_interval.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/driver/staleness.h"
#include "tools/tandem/driver/step_loop.h"

namespace tandem::driver {
namespace {

class ReinforcementLoop : public StepLoop {
 public:
  explicit ReinforcementLoop(const LoopContext& context)
      : StepLoop(context, "train"),
        collector_(context.config, context.train, *context.rewarder, context.interrupted) {}

  absl::StatusOr<RunSummary> Run() {
    const bool is_async = c_.config.trainer().mode() == config::v1::TRAINING_MODE_ASYNC;
    if (resumed() && c_.resume->state.ahead().is_continuous() && !is_async) {
      return absl::FailedPreconditionError(
          "the checkpoint is of mode async, which trains on prompts out of order; resume with "
          "trainer.mode=async (trainer.max_staleness=0 is mode sync)");
    }
    Metrics initial;
    RETURN_IF_ERROR(Publish(initial));
    version_ = c_.fleet->version();
    if (!resumed()) {
      if (c_.test != nullptr && c_.config.trainer().test_freq() > 0) {
        RETURN_IF_ERROR(RunEvaluation(0, version_, initial));
      }
      RETURN_IF_ERROR(WriteInitial(initial));
    }
    RETURN_IF_ERROR(is_async ? RunContinuously() : RunByBatches());
    return Finish();
  }

 private:
  absl::Status RunByBatches() {
    const bool ahead = c_.config.trainer().mode() == config::v1::TRAINING_MODE_ONE_STEP_OFF;
    std::unique_ptr<Generation> next;
    if (first_step_ <= total_steps_) next = StartGeneration(first_step_);
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      RETURN_IF_ERROR(CheckInterrupted());
      EnterTrace(next_trace_, next_start_);
      Stopwatch whole;
      Stopwatch watch;
      Metrics metrics;
      while (!next->WaitFor(kLook)) RETURN_IF_ERROR(CatchUp(version_));
      ASSIGN_OR_RETURN(StepBatch batch, next->Take());
      AddWaitMetrics(watch.Lap(), batch.metrics, metrics);
      if (resumed() && step == first_step_) {
        metrics["rollout/regenerated_prompts"] = static_cast<double>(next->num_regenerated());
      }
      next.reset();
      if (ahead && step < total_steps_) {
        // The next samples come from the version that this step begins with: one step off.
        if (step > 1) RETURN_IF_ERROR(Publish(metrics));
        next = StartGeneration(step + 1);
      }
      RETURN_IF_ERROR(Train(step, batch.groups, metrics));
      const bool evaluate = EvaluationIsDue(step);
      if (!ahead || evaluate || step == total_steps_) {
        while (ahead && step < total_steps_ && !next->WaitFor(kLook)) {
          RETURN_IF_ERROR(CatchUp(version_));
        }
        RETURN_IF_ERROR(Publish(metrics));
      }
      if (evaluate) RETURN_IF_ERROR(RunEvaluation(step, version_, metrics));
      if (!ahead && step < total_steps_) next = StartGeneration(step + 1);
      Ahead state;
      if (next != nullptr) state = {next->Finished(), next->prompt_position()};
      RETURN_IF_ERROR(Report(step, whole.Lap(), metrics, next != nullptr ? &state : nullptr));
    }
    return absl::OkStatus();
  }

  absl::Status RunContinuously() {
    if (first_step_ > total_steps_) return absl::OkStatus();
    ContinuousGenerationOptions options{.config = c_.config,
                                        .prompts = c_.train,
                                        .rewarder = *c_.rewarder,
                                        .fleet = *c_.fleet,
                                        .num_batches = total_steps_ - first_step_ + 1,
                                        .policy_version = version_};
    if (resumed() && c_.resume->state.has_ahead()) options.restored = &c_.resume->state.ahead();
    options.on_tokens = [this](int64_t tokens) { c_.progress.AddTokens(tokens); };
    ContinuousGeneration generation(options);
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      EnterTrace(telemetry::NewTrace(), absl::Now());
      Stopwatch whole;
      Stopwatch watch;
      Metrics metrics;
      ASSIGN_OR_RETURN(StepBatch batch,
                       generation.Take(step, version_, [this] { return CatchUp(version_); }));
      metrics["async/wait_s"] = watch.Lap();
      AddWaitMetrics(metrics["async/wait_s"], batch.metrics, metrics);
      if (resumed() && step == first_step_) {
        metrics["rollout/regenerated_prompts"] = static_cast<double>(generation.num_regenerated());
      }
      RETURN_IF_ERROR(Train(step, batch.groups, metrics));
      RETURN_IF_ERROR(Publish(metrics));
      generation.StepDone(version_);
      if (EvaluationIsDue(step)) RETURN_IF_ERROR(RunEvaluation(step, version_, metrics));
      Ahead ahead;
      ahead.generation = generation.Finished(step + 1, ahead.prompt_position);
      RETURN_IF_ERROR(Report(step, whole.Lap(), metrics, &ahead));
    }
    return absl::OkStatus();
  }

  // Makes a step's batch in the background.
  std::unique_ptr<Generation> StartGeneration(int64_t step) {
    GenerationOptions options;
    options.step = step;
    options.prompt_position = c_.train.position();
    if (resumed() && step == first_step_ && c_.resume->state.has_ahead()) {
      options.restored = &c_.resume->state.ahead();
    }
    next_trace_ = telemetry::NewTrace();
    next_start_ = absl::Now();
    options.sample = [this, trace = next_trace_](std::vector<Prompt> prompts,
                                                 RolloutFleet::GenerateOptions sampling) {
      const telemetry::ScopedTraceContext scope(trace);
      const telemetry::ScopedSpan span("generate", {{"prompts", prompts.size()}});
      sampling.on_tokens = [this](int64_t tokens) { c_.progress.AddTokens(tokens); };
      return c_.fleet->Generate(std::move(prompts), sampling);
    };
    return Generation::Start(collector_, std::move(options));
  }

  absl::Status Train(int64_t step, const std::vector<Group>& groups, Metrics& metrics) {
    Stopwatch watch;
    summary_.rewards.push_back(metrics["rollout/judged_reward/mean"]);
    const double temperature = c_.config.rollout().temperature();
    RETURN_IF_ERROR(c_.folder.WriteRollouts(step, groups, temperature));
    AddStalenessMetrics(groups, version_, metrics);
    watch.Lap();
    const telemetry::ScopedSpan span("train step");
    ASSIGN_OR_RETURN(const auto response,
                     c_.trainer.TrainStep(step, trainer::v1::OBJECTIVE_POLICY_GRADIENT,
                                          ToSamples(step, groups, temperature)));
    RETURN_IF_ERROR(CheckTrained(step, response));
    for (const auto& [name, value] : response.metrics()) metrics[name] = value;
    if (response.has_checkpoint()) checkpoints_.Note(response.checkpoint(), metrics);
    metrics["timing_s/train_step"] = watch.Lap();
    version_ = response.policy_version();
    metrics["training/policy_version"] = static_cast<double>(version_);
    return absl::OkStatus();
  }

  absl::Status Report(int64_t step, double seconds, Metrics& metrics, const Ahead* ahead) {
    metrics["timing_s/step"] = seconds;
    metrics["perf/throughput"] = metrics["perf/total_num_tokens"] / seconds;
    return FinishStep(step, metrics,
                      {absl::StrFormat("reward %.3f", summary_.rewards.back()),
                       absl::StrFormat("version %.0f", metrics["training/policy_version"])},
                      ahead);
  }

  // What the batch says of itself, with the times that the step has waited for it instead of those
  // that it took.
  static void AddWaitMetrics(double waited, const Metrics& of_batch, Metrics& metrics) {
    metrics.insert(of_batch.begin(), of_batch.end());
    metrics["timing_s/reward"] = std::min(waited, of_batch.at("timing_s/reward"));
    metrics["timing_s/gen"] = waited - metrics["timing_s/reward"];
  }

  BatchCollector collector_;
  int64_t version_ = 0;  // of the trainer's policy
  // Trace of the step being generated.
  telemetry::TraceContext next_trace_;
  absl::Time next_start_;
};

}  // namespace

absl::StatusOr<RunSummary> RunReinforcement(const LoopContext& context) {
  return ReinforcementLoop(context).Run();
}

}  // namespace tandem::driver
