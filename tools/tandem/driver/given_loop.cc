// Supervised training and direct preference optimisation: both train on the rows' own completions.
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/driver/step_loop.h"

namespace tandem::driver {
namespace {

// Trains on the rows' own completions, without sampling.
class GivenLoop : public StepLoop {
 public:
  // The samples of a row, the index-th of its step.
  using MakeSamples = std::vector<common::v1::Sample> (*)(int64_t step, int64_t index,
                                                          const Prompt&);

  // `shown` is the metric of the progress line.
  GivenLoop(const LoopContext& context, const char* command, trainer::v1::Objective objective,
            const char* shown, MakeSamples make_samples)
      : StepLoop(context, command),
        objective_(objective),
        shown_(shown),
        make_samples_(make_samples) {}

  absl::StatusOr<RunSummary> Run() {
    const bool evaluates = c_.test != nullptr && c_.config.trainer().test_freq() > 0;
    if (evaluates && !resumed()) {
      Metrics initial;
      RETURN_IF_ERROR(Publish(initial));
      const int64_t version = c_.fleet->version();
      RETURN_IF_ERROR(RunEvaluation(0, version, initial));
      RETURN_IF_ERROR(WriteInitial(initial));
    }
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      RETURN_IF_ERROR(CheckInterrupted());
      EnterTrace(telemetry::NewTrace(), absl::Now());
      Stopwatch watch;
      std::vector<common::v1::Sample> samples;
      int64_t tokens = 0;
      int64_t index = 0;
      for (const Prompt& prompt : c_.train.Next(c_.config.data().train_batch_size())) {
        for (common::v1::Sample& sample : make_samples_(step, index++, prompt)) {
          for (const auto& segment : sample.segments()) tokens += segment.token_ids_size();
          samples.push_back(std::move(sample));
        }
      }
      const auto train = [&] {
        const telemetry::ScopedSpan span("train step");
        return c_.trainer.TrainStep(step, objective_, samples);
      };
      ASSIGN_OR_RETURN(const auto response, train());
      RETURN_IF_ERROR(CheckTrained(step, response));
      c_.progress.AddTokens(tokens);
      Metrics metrics(response.metrics().begin(), response.metrics().end());
      if (response.has_checkpoint()) checkpoints_.Note(response.checkpoint(), metrics);
      if (EvaluationIsDue(step)) {
        RETURN_IF_ERROR(Publish(metrics));
        RETURN_IF_ERROR(RunEvaluation(step, response.policy_version(), metrics));
      }
      metrics["timing_s/step"] = watch.Lap();
      RETURN_IF_ERROR(FinishStep(step, metrics,
                                 {absl::StrFormat("loss %.4f", metrics["train/loss"]),
                                  absl::StrFormat("%s %.4f", shown_, metrics[shown_])}));
    }
    return Finish();
  }

 private:
  const trainer::v1::Objective objective_;
  const char* const shown_;
  const MakeSamples make_samples_;
};

}  // namespace

absl::StatusOr<RunSummary> RunSupervised(const LoopContext& context) {
  return GivenLoop(context, "sft", trainer::v1::OBJECTIVE_SUPERVISED, "actor/grad_norm",
                   ToSupervisedSamples)
      .Run();
}

absl::StatusOr<RunSummary> RunPreference(const LoopContext& context) {
  return GivenLoop(context, "dpo", trainer::v1::OBJECTIVE_PREFERENCE, "rewards/accuracies",
                   ToPreferenceSamples)
      .Run();
}

}  // namespace tandem::driver
