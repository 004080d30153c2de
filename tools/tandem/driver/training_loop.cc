#include "tools/tandem/driver/training_loop.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/batch_collector.h"
#include "tools/tandem/driver/generation.h"
#include "tools/tandem/driver/run_checkpoints.h"
#include "tools/tandem/driver/sample_builder.h"

namespace tandem::driver {
namespace {

class Stopwatch {
 public:
  // Seconds since construction or the last lap.
  double Lap() {
    const absl::Time now = absl::Now();
    const double seconds = absl::ToDoubleSeconds(now - last_);
    last_ = now;
    return seconds;
  }

 private:
  absl::Time last_ = absl::Now();
};

// What both objectives share: publishing, evaluating, saving, reporting.
class Loop {
 public:
  Loop(const LoopContext& context, const char* command)
      : c_(context),
        total_steps_(context.config.trainer().total_steps()),
        first_step_(context.resume == nullptr ? 1 : context.resume->state.step() + 1),
        command_(command),
        checkpoints_(context.config, context.trainer, context.folder, context.progress) {
    if (c_.resume != nullptr) GoOn(*c_.resume);
  }

 protected:
  absl::Status CheckInterrupted() const {
    return c_.interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
  }

  absl::Status Publish(Metrics& metrics) {
    Stopwatch watch;
    ASSIGN_OR_RETURN(const auto response, c_.trainer.PublishWeights(*c_.fleet));
    metrics["timing_s/update_weights"] += watch.Lap();
    double pause = 0;
    for (const auto& replica : response.replicas())
      pause = std::max(pause, replica.pause_seconds());
    metrics["update_weights/pause_s"] = pause;
    metrics["update_weights/bytes"] = static_cast<double>(response.size_bytes());
    metrics["update_weights/sent_bytes"] = static_cast<double>(response.sent_bytes());
    if (response.has_changed_share()) {
      metrics["update_weights/changed_share"] = response.changed_share();
    }
    metrics["training/policy_version"] = static_cast<double>(response.policy_version());
    return absl::OkStatus();
  }

  bool EvaluationIsDue(int64_t step) const {
    const int64_t freq = c_.config.trainer().test_freq();
    return c_.test != nullptr && freq > 0 && (step % freq == 0 || step == total_steps_);
  }

  absl::Status RunEvaluation(int64_t step, Metrics& metrics) {
    Stopwatch watch;
    ASSIGN_OR_RETURN(EvalResult result, Evaluate(c_.config, *c_.test, *c_.fleet, *c_.rewarder));
    metrics["timing_s/testing"] = watch.Lap();
    metrics[absl::StrCat("val-core/", c_.config.reward().name(), "/reward/mean@",
                         c_.config.rollout().val_kwargs().n())] = result.mean_reward;
    summary_.evaluations.emplace_back(step, result.mean_reward);
    // A bar, so that a reader sees the reward climb from line to line.
    const int bar = static_cast<int>(std::clamp(result.mean_reward, 0.0, 1.0) * 40);
    c_.progress.Note(absl::StrFormat("step %4d  evaluation %.4f |%-40s| %d prompts", step,
                                     result.mean_reward, std::string(bar, '#'),
                                     result.groups.size()));
    return absl::OkStatus();
  }

  bool resumed() const { return c_.resume != nullptr; }

  // The line of step 0: the policy before training.
  absl::Status WriteInitial(const Metrics& metrics) {
    RETURN_IF_ERROR(c_.folder.WriteMetrics(0, metrics));
    if (c_.on_step) c_.on_step(0, metrics);
    return absl::OkStatus();
  }

  // `ahead` is the next step's batch, null where it has not been begun.
  absl::Status FinishStep(int64_t step, Metrics& metrics, std::vector<std::string> facts,
                          const Generation* ahead = nullptr) {
    if (checkpoints_.IsDue(step)) {
      v1::DriverState state;
      state.set_command(command_);
      state.set_seed(c_.config.seed());
      state.set_num_prompts(static_cast<int64_t>(c_.train.prompts().size()));
      state.set_prompt_position(ahead == nullptr ? c_.train.position() : ahead->prompt_position());
      if (ahead != nullptr) *state.mutable_ahead() = ahead->Finished();
      RETURN_IF_ERROR(checkpoints_.Save(step, std::move(state), metrics));
    }
    RETURN_IF_ERROR(c_.folder.WriteMetrics(step, metrics));
    if (c_.on_step) c_.on_step(step, metrics);
    if (!summary_.evaluations.empty()) {
      facts.push_back(absl::StrFormat("eval %.3f", summary_.evaluations.back().second));
    }
    c_.progress.Update(step, facts);
    summary_.steps = step;
    return absl::OkStatus();
  }

  absl::StatusOr<RunSummary> Finish() {
    RETURN_IF_ERROR(checkpoints_.SaveModel());
    summary_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
    return std::move(summary_);
  }

  const LoopContext& c_;
  const int64_t total_steps_;
  const int64_t first_step_;
  const char* const command_;
  RunCheckpoints checkpoints_;
  const absl::Time start_ = absl::Now();
  RunSummary summary_;

 private:
  // What the steps before came to, from their lines of metrics.
  void GoOn(const ResumePoint& point) {
    c_.train.Seek(point.state.prompt_position());
    const std::string evaluation =
        absl::StrCat("val-core/", c_.config.reward().name(), "/reward/mean@",
                     c_.config.rollout().val_kwargs().n());
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
};

class ReinforcementLoop : public Loop {
 public:
  explicit ReinforcementLoop(const LoopContext& context)
      : Loop(context, "train"),
        collector_(context.config, context.train, *context.rewarder, context.interrupted) {}

  absl::StatusOr<RunSummary> Run() {
    Metrics initial;
    RETURN_IF_ERROR(Publish(initial));
    if (resumed()) {
      version_ = static_cast<double>(c_.resume->policy_version);
    } else {
      if (c_.test != nullptr && c_.config.trainer().test_freq() > 0) {
        RETURN_IF_ERROR(RunEvaluation(0, initial));
      }
      RETURN_IF_ERROR(WriteInitial(initial));
    }
    const bool ahead = c_.config.trainer().mode() == config::v1::TRAINING_MODE_ONE_STEP_OFF;
    std::unique_ptr<Generation> next;
    if (first_step_ <= total_steps_) {
      next = StartGeneration(first_step_);
    }
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      RETURN_IF_ERROR(CheckInterrupted());
      Stopwatch whole;
      Stopwatch watch;
      Metrics metrics;
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
      summary_.rewards.push_back(metrics["rollout/judged_reward/mean"]);
      RETURN_IF_ERROR(Train(step, batch.groups, metrics));
      const bool evaluate = EvaluationIsDue(step);
      if (!ahead || evaluate || step == total_steps_) {
        if (ahead && step < total_steps_) next->Wait();
        RETURN_IF_ERROR(Publish(metrics));
      }
      if (evaluate) RETURN_IF_ERROR(RunEvaluation(step, metrics));
      if (!ahead && step < total_steps_) next = StartGeneration(step + 1);
      metrics["timing_s/step"] = whole.Lap();
      metrics["perf/throughput"] = metrics["perf/total_num_tokens"] / metrics["timing_s/step"];
      RETURN_IF_ERROR(
          FinishStep(step, metrics,
                     {absl::StrFormat("reward %.3f", summary_.rewards.back()),
                      absl::StrFormat("version %.0f", metrics["training/policy_version"])},
                     next.get()));
    }
    return Finish();
  }

 private:
  // Makes a step's batch in the background.
  std::unique_ptr<Generation> StartGeneration(int64_t step) {
    GenerationOptions options;
    options.step = step;
    options.prompt_position = c_.train.position();
    if (resumed() && step == first_step_ && c_.resume->state.has_ahead()) {
      options.restored = &c_.resume->state.ahead();
    }
    options.sample = [this](std::vector<Prompt> prompts, RolloutFleet::GenerateOptions sampling) {
      sampling.on_tokens = [this](int64_t tokens) { c_.progress.AddTokens(tokens); };
      return c_.fleet->Generate(std::move(prompts), sampling);
    };
    return Generation::Start(collector_, std::move(options));
  }

  absl::Status Train(int64_t step, const std::vector<Group>& groups, Metrics& metrics) {
    Stopwatch watch;
    const double temperature = c_.config.rollout().temperature();
    RETURN_IF_ERROR(c_.folder.WriteRollouts(step, groups, temperature));
    double staleness = 0;
    int64_t samples = 0;
    for (const Group& group : groups) {
      for (const Completion& completion : group.completions) {
        ++samples;
        if (completion.version_spans.empty()) continue;
        staleness += version_ - static_cast<double>(completion.version_spans[0].policy_version());
      }
    }
    metrics["training/off_policy/trajectory_staleness/mean"] =
        step == 1 ? 0 : staleness / static_cast<double>(samples);
    watch.Lap();
    ASSIGN_OR_RETURN(const auto response,
                     c_.trainer.TrainStep(step, trainer::v1::OBJECTIVE_POLICY_GRADIENT,
                                          ToSamples(step, groups, temperature)));
    for (const auto& [name, value] : response.metrics()) metrics[name] = value;
    if (response.has_checkpoint()) checkpoints_.Note(response.checkpoint(), metrics);
    metrics["timing_s/train_step"] = watch.Lap();
    version_ = static_cast<double>(response.policy_version());
    metrics["training/policy_version"] = version_;
    return absl::OkStatus();
  }

  // What the batch says of itself, with the times that the step has waited for it instead of those
  // that it took.
  static void AddWaitMetrics(double waited, const Metrics& of_batch, Metrics& metrics) {
    metrics.insert(of_batch.begin(), of_batch.end());
    metrics["timing_s/reward"] = std::min(waited, of_batch.at("timing_s/reward"));
    metrics["timing_s/gen"] = waited - metrics["timing_s/reward"];
  }

  BatchCollector collector_;
  double version_ = 0;  // of the trainer's policy
};

// Trains on what the rows give, without sampling.
class GivenLoop : public Loop {
 public:
  // The samples of a row, the index-th of its step.
  using MakeSamples = std::function<absl::StatusOr<std::vector<common::v1::Sample>>(
      int64_t step, int64_t index, const Prompt&)>;

  // `shown` is the metric of the progress line.
  GivenLoop(const LoopContext& context, const char* command, trainer::v1::Objective objective,
            const char* shown, MakeSamples make_samples)
      : Loop(context, command),
        objective_(objective),
        shown_(shown),
        make_samples_(std::move(make_samples)) {}

  absl::StatusOr<RunSummary> Run() {
    const bool evaluates = c_.test != nullptr && c_.config.trainer().test_freq() > 0;
    if (evaluates && !resumed()) {
      Metrics initial;
      RETURN_IF_ERROR(Publish(initial));
      RETURN_IF_ERROR(RunEvaluation(0, initial));
      RETURN_IF_ERROR(WriteInitial(initial));
    }
    for (int64_t step = first_step_; step <= total_steps_; ++step) {
      RETURN_IF_ERROR(CheckInterrupted());
      Stopwatch watch;
      std::vector<common::v1::Sample> samples;
      int64_t tokens = 0;
      int64_t index = 0;
      for (const Prompt& prompt : c_.train.Next(c_.config.data().train_batch_size())) {
        ASSIGN_OR_RETURN(std::vector<common::v1::Sample> of_row,
                         make_samples_(step, index++, prompt));
        for (common::v1::Sample& sample : of_row) {
          for (const auto& segment : sample.segments()) tokens += segment.token_ids_size();
          samples.push_back(std::move(sample));
        }
      }
      ASSIGN_OR_RETURN(const auto response, c_.trainer.TrainStep(step, objective_, samples));
      c_.progress.AddTokens(tokens);
      Metrics metrics(response.metrics().begin(), response.metrics().end());
      if (response.has_checkpoint()) checkpoints_.Note(response.checkpoint(), metrics);
      if (EvaluationIsDue(step)) {
        RETURN_IF_ERROR(Publish(metrics));
        RETURN_IF_ERROR(RunEvaluation(step, metrics));
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

absl::StatusOr<RunSummary> RunReinforcement(const LoopContext& context) {
  return ReinforcementLoop(context).Run();
}

absl::StatusOr<RunSummary> RunSupervised(const LoopContext& context,
                                         const tokenizer::Tokenizer& tokenizer,
                                         uint32_t eos_token_id) {
  return GivenLoop(context, "sft", trainer::v1::OBJECTIVE_SUPERVISED, "actor/grad_norm",
                   [&](int64_t step, int64_t index,
                       const Prompt& prompt) -> absl::StatusOr<std::vector<common::v1::Sample>> {
                     ASSIGN_OR_RETURN(
                         common::v1::Sample sample,
                         ToSupervisedSample(step, index, prompt, tokenizer, eos_token_id));
                     return std::vector<common::v1::Sample>{std::move(sample)};
                   })
      .Run();
}

absl::StatusOr<RunSummary> RunPreference(const LoopContext& context,
                                         const tokenizer::Tokenizer& tokenizer,
                                         uint32_t eos_token_id) {
  return GivenLoop(context, "dpo", trainer::v1::OBJECTIVE_PREFERENCE, "rewards/accuracies",
                   [&](int64_t step, int64_t index, const Prompt& prompt) {
                     return ToPreferenceSamples(step, index, prompt, context.config.data(),
                                                tokenizer, eos_token_id);
                   })
      .Run();
}

}  // namespace tandem::driver
