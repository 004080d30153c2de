// Supervised training and direct preference optimisation: both train on the rows' own completions.
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/held_out_loss.h"
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
        make_samples_(make_samples),
        held_out_(context.config,
                  context.test == nullptr ? std::vector<Prompt>() : context.test->prompts(),
                  objective == trainer::v1::OBJECTIVE_PREFERENCE,
                  [&context](const trainer::v1::ComputeLogProbsRequest& request) {
                    return context.trainer.ComputeLogProbs(request);
                  }) {}

  absl::StatusOr<RunSummary> Run() {
    absl::StatusOr<RunSummary> summary = RunToEnd();
    if (!summary.ok()) return End(summary.status());
    return summary;
  }

 private:
  absl::StatusOr<RunSummary> RunToEnd() {
    RETURN_IF_ERROR(CountVersions());
    const bool evaluates = c_.test != nullptr && c_.config.trainer().test_freq() > 0;
    if (evaluates && !resumed()) {
      Metrics initial;
      RETURN_IF_ERROR(EvaluateGiven(0, initial));
      RETURN_IF_ERROR(WriteInitial(initial));
    }
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      Stopwatch watch;
      Metrics metrics;
      const absl::Status status = RunStep(step, metrics);
      if (!status.ok() && !must_finish_step()) return status;
      metrics["timing_s/step"] = watch.Lap();
      RETURN_IF_ERROR(FinishStep(step, metrics,
                                 {absl::StrFormat("loss %.4f", metrics["train/loss"]),
                                  absl::StrFormat("%s %.4f", shown_, metrics[shown_])}));
      RETURN_IF_ERROR(status);
    }
    return Finish();
  }

  // One step up to its report.
  absl::Status RunStep(int64_t step, Metrics& metrics) {
    RETURN_IF_ERROR(CheckInterrupted());
    EnterTrace(telemetry::NewTrace(), absl::Now());
    std::vector<common::v1::Sample> samples;
    int64_t tokens = 0;
    int64_t index = 0;
    const std::vector<Prompt> rows = c_.train.Next(c_.config.data().train_batch_size());
    std::vector<const Prompt*> rows_of_samples;
    StepImages images;
    for (const Prompt& prompt : rows) {
      AddImages(prompt, images);
      for (common::v1::Sample& sample : make_samples_(step, index++, prompt)) {
        for (const auto& segment : sample.segments()) tokens += segment.token_ids_size();
        samples.push_back(std::move(sample));
        rows_of_samples.push_back(&prompt);
      }
    }
    if (c_.teachers != nullptr) {
      const telemetry::ScopedSpan span("teacher", {{"sequences", samples.size()}});
      RETURN_IF_ERROR(c_.teachers->ScoreTop(rows_of_samples, samples)) << "step " << step;
      metrics["timing_s/teacher"] = c_.teachers->TakeSeconds();
    }
    const auto train = [&] {
      const telemetry::ScopedSpan span("train step");
      return c_.trainer.TrainStep(step, objective_, samples, total_steps_, images);
    };
    ASSIGN_OR_RETURN(const auto response, train());
    metrics.insert(response.metrics().begin(), response.metrics().end());
    RETURN_IF_ERROR(CheckTrained(step, response));
    AddPolicyVersion(response.policy_version(), metrics);
    c_.progress.AddTokens(tokens);
    if (response.has_checkpoint()) checkpoints_.Note(response.checkpoint(), metrics);
    if (EvaluationIsDue(step)) {
      RETURN_IF_ERROR(EvaluateGiven(step, metrics));
    }
    return absl::OkStatus();
  }

  // Measures the loss on the test rows, and rewards their completions if the run has rollouts.
  absl::Status EvaluateGiven(int64_t step, Metrics& metrics) {
    Stopwatch watch;
    RETURN_IF_ERROR(held_out_.Measure(metrics));
    if (const auto loss = metrics.find("val/loss"); loss != metrics.end()) {
      metrics["timing_s/val_loss"] = watch.Lap();
      c_.progress.Report(absl::StrFormat("step %4d  held-out loss %.4f", step, loss->second));
    }
    if (c_.fleet == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(Publish(metrics));
    return RunEvaluation(step, c_.fleet->version(), metrics);
  }

  const trainer::v1::Objective objective_;
  const char* const shown_;
  const MakeSamples make_samples_;
  HeldOutLoss held_out_;
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
