// Reinforcement learning: generate, judge, train, publish. One loop serves the three modes, which
// differ in when the next step's groups may begin: `sync` after the step, `one_step_off` before it
// trains, `async` as soon as its weights are published, and up to max_staleness steps ahead.
#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "common/config/teacher.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/encoding_metrics.h"
#include "tools/tandem/driver/equal_rewards.h"
#include "tools/tandem/driver/generation_loop.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/driver/staleness.h"
#include "tools/tandem/driver/step_loop.h"

namespace tandem::driver {
namespace {

class ReinforcementLoop : public StepLoop {
 public:
  explicit ReinforcementLoop(const LoopContext& context)
      : StepLoop(context, "train"),
        mode_(context.config.trainer().mode()),
        equal_rewards_(context.config, [&context](const std::string& line) {
          if (config::LearnsFromRewards(context.config)) context.progress.Note(line);
        }) {}

  absl::StatusOr<RunSummary> Run() {
    absl::StatusOr<RunSummary> summary = RunToEnd();
    if (!summary.ok()) return End(summary.status());
    return summary;
  }

 private:
  absl::StatusOr<RunSummary> RunToEnd() {
    if (resumed() && c_.resume->state.ahead().is_continuous() && !is_async()) {
      return absl::FailedPreconditionError(
          "the checkpoint comes from trainer.mode=async, which trains on prompts out of order; "
          "resume with trainer.mode=async (trainer.max_staleness=0 behaves like mode sync)");
    }
    RETURN_IF_ERROR(CountVersions());
    Metrics initial;
    RETURN_IF_ERROR(Publish(initial));
    version_ = c_.fleet->version();
    if (!resumed()) {
      if (c_.test != nullptr && c_.config.trainer().test_freq() > 0) {
        RETURN_IF_ERROR(RunEvaluation(0, version_, initial));
      }
      RETURN_IF_ERROR(WriteInitial(initial));
    }
    if (first_step_ <= total_steps_) RETURN_IF_ERROR(RunSteps());
    return Finish();
  }

  bool is_async() const { return mode_ == config::v1::TRAINING_MODE_ASYNC; }
  bool is_one_step_off() const { return mode_ == config::v1::TRAINING_MODE_ONE_STEP_OFF; }

  absl::Status RunSteps() {
    if (c_.sees_images) encoding_.Begin(c_.fleet->GetServerInfos());
    BeginTrace();
    GenerationLoop generation(GenerationOptions());
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      Stopwatch whole;
      Metrics metrics;
      const absl::Status status = RunStep(step, generation, metrics);
      if (!status.ok() && !must_finish_step()) return status;
      std::optional<Ahead> ahead;
      if (is_async() || step < total_steps_) ahead = generation.Save(step + 1, version_);
      if (c_.sees_images) encoding_.Add(c_.fleet->GetServerInfos(), metrics);
      RETURN_IF_ERROR(Report(step, whole.Lap(), metrics, ahead.has_value() ? &*ahead : nullptr));
      RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // One step up to its report.
  absl::Status RunStep(int64_t step, GenerationLoop& generation, Metrics& metrics) {
    const auto look = [this] { return CatchUp(version_); };
    RETURN_IF_ERROR(CheckInterrupted());
    if (is_async()) BeginTrace();
    EnterTrace(next_trace_, next_start_);
    Stopwatch watch;
    ASSIGN_OR_RETURN(StepBatch batch, generation.Take(step, version_, look));
    RETURN_IF_ERROR(CheckInterrupted());
    AddWaitMetrics(watch.Lap(), batch.metrics, metrics);
    if (resumed() && step == first_step_) {
      metrics["rollout/regenerated_prompts"] = static_cast<double>(generation.num_regenerated());
    }
    const bool has_next = step < total_steps_;
    if (is_one_step_off() && has_next) {
      // The next samples come from the version that this step begins with: one step off.
      if (step > 1) RETURN_IF_ERROR(Publish(metrics));
      OpenNextStep(generation);
    }
    RETURN_IF_ERROR(Train(step, batch.groups, metrics));
    const bool evaluate = EvaluationIsDue(step);
    if (!is_one_step_off() || evaluate || !has_next) {
      if (is_one_step_off() && has_next) RETURN_IF_ERROR(generation.WaitForBatch(look));
      RETURN_IF_ERROR(Publish(metrics));
    }
    if (is_async()) generation.OpenStep();
    if (evaluate) RETURN_IF_ERROR(RunEvaluation(step, version_, metrics));
    if (!is_async() && !is_one_step_off() && has_next) OpenNextStep(generation);
    return absl::OkStatus();
  }

  GenerationLoop::Options GenerationOptions() {
    GenerationLoop::Options options{.config = c_.config,
                                    .prompts = c_.train,
                                    .rewarder = *c_.rewarder,
                                    .sampler = FleetSampler(*c_.fleet),
                                    .first_step = first_step_,
                                    .num_batches = total_steps_ - first_step_ + 1,
                                    .policy_version = version_,
                                    .interrupted = c_.interrupted};
    if (resumed() && c_.resume->state.has_ahead()) options.restored = &c_.resume->state.ahead();
    if (c_.episodes != nullptr) {
      options.make_episode = c_.episodes->factory(
          c_.fleet, c_.config.actor().router_replay() == config::v1::ROUTER_REPLAY_R3);
    }
    options.teachers = c_.teachers;
    // In mode async a group begins before its training step is known.
    if (!is_async()) options.trace = next_trace_;
    options.on_tokens = [this](int64_t tokens) { c_.progress.AddTokens(tokens); };
    return options;
  }

  void OpenNextStep(GenerationLoop& generation) {
    BeginTrace();
    generation.OpenStep(next_trace_);
  }

  void BeginTrace() {
    next_trace_ = telemetry::NewTrace();
    next_start_ = absl::Now();
  }

  absl::Status Train(int64_t step, const std::vector<Group>& groups, Metrics& metrics) {
    Stopwatch watch;
    summary_.rewards.push_back(metrics["rollout/judged_reward/mean"]);
    const double temperature = c_.config.rollout().temperature();
    RETURN_IF_ERROR(c_.folder.WriteRollouts(step, groups, temperature, version_shift_));
    AddStalenessMetrics(groups, version_, metrics);
    equal_rewards_.OnStep(step, groups, metrics);
    StepImages images;
    for (const Group& group : groups) AddImages(group, images);
    watch.Lap();
    const telemetry::ScopedSpan span("train step");
    ASSIGN_OR_RETURN(
        const auto response,
        c_.trainer.TrainStep(step, trainer::v1::OBJECTIVE_POLICY_GRADIENT,
                             ToSamples(step, groups, temperature), total_steps_, images));
    RETURN_IF_ERROR(CheckTrained(step, response));
    for (const auto& [name, value] : response.metrics()) metrics[name] = value;
    if (response.has_checkpoint()) checkpoints_.Note(response.checkpoint(), metrics);
    metrics["timing_s/train_step"] = watch.Lap();
    version_ = response.policy_version();
    AddPolicyVersion(version_, metrics);
    return absl::OkStatus();
  }

  absl::Status Report(int64_t step, double seconds, Metrics& metrics, Ahead* ahead) {
    metrics["timing_s/step"] = seconds;
    metrics["perf/throughput"] = metrics["perf/total_num_tokens"] / seconds;
    return FinishStep(step, metrics,
                      {absl::StrFormat("reward %.3f", summary_.rewards.back()),
                       absl::StrFormat("version %.0f", metrics["training/policy_version"])},
                      ahead);
  }

  // Adds the batch's metrics, and how long the step waited for generation and for rewards.
  void AddWaitMetrics(double waited, const Metrics& of_batch, Metrics& metrics) const {
    metrics.insert(of_batch.begin(), of_batch.end());
    if (c_.episodes != nullptr) c_.episodes->AddMetrics(metrics);
    if (is_async()) metrics["async/wait_s"] = waited;
    metrics["timing_s/reward"] = std::min(waited, of_batch.at("timing_s/reward"));
    metrics["timing_s/gen"] = waited - metrics["timing_s/reward"];
  }

  const config::v1::TrainingMode mode_;
  EqualRewards equal_rewards_;
  EncodingMetrics encoding_;
  int64_t version_ = 0;  // of the trainer's policy
  // Trace of the step whose groups began last; in mode async, of the step that trains.
  telemetry::TraceContext next_trace_;
  absl::Time next_start_;
};

}  // namespace

absl::StatusOr<RunSummary> RunReinforcement(const LoopContext& context) {
  return ReinforcementLoop(context).Run();
}

}  // namespace tandem::driver
