#include "tools/tandem/driver/step_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "common/text/count.h"
#include "tools/tandem/driver/evaluator.h"
#include "tools/tandem/driver/part_scores.h"
#include "tools/tandem/driver/publish_retry.h"
#include "tools/tandem/driver/reward_parts.h"

namespace tandem::driver {
namespace {

// Pause between attempts at an update that reached no replica.
constexpr absl::Duration kPublishPause = absl::Seconds(1);
// Pause between attempts to publish to replicas that have joined.
constexpr absl::Duration kCatchUpPause = absl::Seconds(2);

}  // namespace

StepLoop::StepLoop(const LoopContext& context, const char* command)
    : c_(context),
      total_steps_(context.config.trainer().total_steps()),
      first_step_(context.resume == nullptr ? 1 : context.resume->state.step() + 1),
      command_(command),
      checkpoints_(context.config, context.trainer, context.folder, context.progress,
                   context.inputs),
      skipped_steps_(context.config.trainer().max_skipped_steps(),
                     [&context](const std::string& line) { context.progress.Note(line); }),
      best_(context.config.trainer().save_best()) {
  if (c_.resume != nullptr) ResumeFrom(*c_.resume);
}

absl::Status StepLoop::CountVersions() {
  ASSIGN_OR_RETURN(version_shift_, VersionShift(c_.trainer, c_.resume));
  return absl::OkStatus();
}

absl::Status StepLoop::CheckInterrupted() const {
  if (c_.interrupted()) return absl::CancelledError("interrupted");
  return c_.trainer.LeaseStatus();  // without the lease the loop, generation included, must stop
}

absl::Status StepLoop::Publish(Metrics& metrics) {
  const telemetry::ScopedSpan span("publish");
  Stopwatch watch;
  absl::StatusOr<trainer::v1::PublishWeightsResponse> response;
  PublishRetry retry(absl::Now(), absl::Seconds(c_.config.rollout().request_timeout_s()));
  while (true) {
    RETURN_IF_ERROR(CheckInterrupted());
    response = c_.trainer.PublishWeights(*c_.fleet);
    if (response.ok() || !c_.fleet->replicas_may_change() ||
        !retry.MayTryAgain(response.status(), absl::Now())) {
      break;
    }
    c_.progress.Note(
        absl::StrCat("the weights were published to no rollout: ", response.status().message()));
    absl::SleepFor(kPublishPause);
  }
  RETURN_IF_ERROR(response.status());
  metrics["timing_s/update_weights"] += watch.Lap();
  if (!response->links().empty()) {
    RETURN_IF_ERROR(c_.folder.WriteUpdate(StepOfUpdate(), *response));
  }
  double pause = 0;
  for (const auto& replica : response->replicas()) {
    pause = std::max(pause, replica.pause_seconds());
    if (!replica.committed()) {
      c_.progress.Note(absl::StrCat("version ", response->policy_version(), " is not live on ",
                                    replica.replica_id(), ": ", replica.error()));
    }
  }
  metrics["update_weights/pause_s"] = pause;
  for (const auto& phase : response->phases()) {
    metrics[absl::StrCat("update_weights/exposed_s/", phase.phase())] = phase.exposed();
  }
  metrics["update_weights/bytes"] = static_cast<double>(response->size_bytes());
  metrics["update_weights/sent_bytes"] = static_cast<double>(response->sent_bytes());
  if (response->has_changed_share()) {
    metrics["update_weights/changed_share"] = response->changed_share();
  }
  AddPolicyVersion(response->policy_version(), metrics);
  return absl::OkStatus();
}

absl::Status StepLoop::CatchUp(int64_t version) {
  RETURN_IF_ERROR(CheckInterrupted());
  const absl::Time now = absl::Now();
  if (now < next_catch_up_ || !c_.fleet->WantsWeights()) return absl::OkStatus();
  if (c_.fleet->version() != version && c_.fleet->AnyServes()) return absl::OkStatus();
  Metrics ignored;
  RETURN_IF_ERROR(Publish(ignored));
  next_catch_up_ = absl::Now() + kCatchUpPause;
  return absl::OkStatus();
}

void StepLoop::EnterTrace(const telemetry::TraceContext& trace, absl::Time start) {
  step_begun_ = true;
  trace_ = trace;
  trace_start_ = start;
  trace_scope_.emplace(trace);
}

absl::Status StepLoop::CheckTrained(int64_t step, const trainer::v1::TrainStepResponse& response) {
  trained_step_ = step;
  return skipped_steps_.OnStep(step, response.policy_version(),
                               {response.metrics().begin(), response.metrics().end()});
}

bool StepLoop::EvaluationIsDue(int64_t step) const {
  const int64_t freq = c_.config.trainer().test_freq();
  return c_.test != nullptr && freq > 0 && (step % freq == 0 || step == total_steps_);
}

std::string StepLoop::EvaluationMetric(const std::string& label) const {
  return driver::EvaluationMetric(c_.config, label);
}

absl::Status StepLoop::RunEvaluation(int64_t step, int64_t version, Metrics& metrics) {
  const telemetry::ScopedSpan span("evaluate");
  Stopwatch watch;
  ASSIGN_OR_RETURN(EvalResult result,
                   Evaluate(
                       c_.config, *c_.test, *c_.fleet, *c_.rewarder,
                       [this, version] { return CatchUp(version); }, c_.episodes));
  RETURN_IF_ERROR(CheckInterrupted());  // which aborts samples, and would spoil the mean
  RETURN_IF_ERROR(c_.folder.WriteEvaluation(
      step, result.groups, c_.config.rollout().val_kwargs().temperature(), version_shift_));
  metrics["timing_s/testing"] = watch.Lap();
  metrics[EvaluationMetric(RewardLabel(c_.config.reward()))] = result.mean_reward;
  for (const auto& [label, mean] : MeanPartScores(result.groups)) {
    metrics[EvaluationMetric(label)] = mean;
  }
  if (MayFail(c_.config.reward())) {
    metrics["val/dropped_prompts"] = static_cast<double>(result.num_unjudged);
  }
  summary_.evaluations.emplace_back(step, result.mean_reward);
  // A bar shows how the reward changes from line to line.
  const int bar = static_cast<int>(std::clamp(result.mean_reward, 0.0, 1.0) * 40);
  c_.progress.Report(absl::StrFormat("step %4d  evaluation %.4f |%-40s| %s", step,
                                     result.mean_reward, std::string(bar, '#'),
                                     text::Count(result.groups.size(), "prompt")));
  return absl::OkStatus();
}

absl::Status StepLoop::WriteInitial(const Metrics& metrics) {
  RETURN_IF_ERROR(c_.folder.WriteMetrics(0, metrics));
  if (c_.on_step) c_.on_step(0, metrics);
  return absl::OkStatus();
}

absl::Status StepLoop::FinishStep(int64_t step, Metrics& metrics, std::vector<std::string> facts,
                                  Ahead* ahead) {
  RETURN_IF_ERROR(c_.folder.Begin());  // the trainer has taken the step
  if (c_.fleet != nullptr) metrics.merge(c_.fleet->TakeMetrics());
  // Before the checkpoint: a run that resumes from it has the best model of its steps.
  RETURN_IF_ERROR(SaveBest(step, metrics));
  v1::DriverState state;
  state.set_command(command_);
  state.set_seed(c_.config.seed());
  state.set_num_prompts(c_.train.epoch_size());
  state.set_prompt_position(ahead == nullptr ? c_.train.position() : ahead->prompt_position);
  if (ahead != nullptr) *state.mutable_ahead() = std::move(ahead->generation);
  RETURN_IF_ERROR(checkpoints_.AfterStep(step, std::move(state), metrics));
  RETURN_IF_ERROR(c_.folder.WriteMetrics(step, metrics));
  if (c_.on_step) c_.on_step(step, metrics);
  if (!summary_.evaluations.empty()) {
    facts.push_back(absl::StrFormat("eval %.3f", summary_.evaluations.back().second));
  }
  c_.progress.Update(step, facts);
  finished_step_ = step;
  summary_.steps = step;
  if (trace_scope_.has_value()) {
    trace_scope_.reset();
    telemetry::RecordSpan(absl::StrCat("step ", step), trace_start_, trace_, 0, {{"step", step}});
  }
  return absl::OkStatus();
}

absl::Status StepLoop::SaveBest(int64_t step, Metrics& metrics) {
  if (const std::string note = best_.NoteMissing(step, metrics); !note.empty()) {
    c_.progress.Note(note);
  }
  const auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto response,
                     c_.trainer.SaveCheckpoint(c_.folder.best_path(),
                                               trainer::v1::CHECKPOINT_FORMAT_HUGGING_FACE));
    if (response.has_earlier()) checkpoints_.Note(response.earlier(), metrics);
    return absl::OkStatus();
  };
  const absl::Status saved = best_.OnStep(step, metrics, [&] {
    return c_.folder.SaveBest(
        {.step = step, .metric = best_.metric(), .value = metrics.at(best_.metric())}, write);
  });
  if (saved.ok() || IsLeaseLost(saved)) return saved;
  RETURN_IF_ERROR(c_.folder.Check());
  RETURN_IF_ERROR(c_.trainer.GetModelInfo().status()) << saved.message();
  c_.progress.Note(absl::StrCat("the best model, of step ", step, ", could not be written: ",
                                saved.message(), "; training continues"));
  return absl::OkStatus();
}

absl::Status StepLoop::End(absl::Status error) {
  if (c_.interrupted()) checkpoints_.SaveLast();
  return error;
}

absl::StatusOr<RunSummary> StepLoop::Finish() {
  if (!best_.metric().empty() && !best_.step().has_value()) {
    c_.progress.Note(absl::StrCat("no step had the metric ", best_.metric(),
                                  " (trainer.save_best); metrics.jsonl has the names"));
  }
  summary_.best_step = best_.step();
  RETURN_IF_ERROR(checkpoints_.SaveModel());
  summary_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  return std::move(summary_);
}

void StepLoop::ResumeFrom(const ResumePoint& point) {
  c_.train.Seek(point.state.prompt_position());
  best_.ResumeFrom(c_.folder.ReadBest());
  const std::string evaluation = EvaluationMetric(RewardLabel(c_.config.reward()));
  for (const nlohmann::json& row : point.rows) {
    const int64_t step = row["training/global_step"];
    if (row.contains(evaluation) && row[evaluation].is_number()) {
      summary_.evaluations.emplace_back(step, row[evaluation]);
    }
    if (row.contains("rollout/judged_reward/mean") &&
        row["rollout/judged_reward/mean"].is_number()) {
      summary_.rewards.push_back(row["rollout/judged_reward/mean"]);
    }
    summary_.steps = step;
  }
}

}  // namespace tandem::driver
