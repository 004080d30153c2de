// tandem replay: trains on recorded samples; no rollout is needed.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/jsonl.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/model/routed_experts.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/machine_check.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/run_start.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/commands/teacher_checks.h"
#include "tools/tandem/driver/checkpoint_schedule.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/recorded_samples.h"
#include "tools/tandem/driver/resume.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/driver/run_inputs.h"
#include "tools/tandem/plan/memory_budget.h"

namespace tandem::commands {
namespace {

using nlohmann::json;

struct ReplayOptions {
  RunOptions run;
  std::string input;
};

void PrintStep(int64_t step, const driver::Metrics& metrics) {
  json line = {{"training/global_step", step}};
  for (const auto& [name, value] : metrics) line[name] = value;
  std::printf("%s", io::ToJsonLine(line).c_str());
  std::fflush(stdout);
}

// A recording has the steps and samples that it has: keys that would choose others are refused.
absl::Status CheckKeys(const config::v1::RunConfig& config, const config::Places& places) {
  std::string problem;
  if (config.trainer().total_epochs() != 0) {
    problem =
        "trainer.total_epochs: tandem replay knows no epochs: it trains on each recorded step "
        "once, "
        "or on trainer.total_steps steps; remove the key (--set trainer.total_epochs=0)";
  } else if (!config.trainer().save_best().empty()) {
    problem =
        "trainer.save_best: tandem replay evaluates nothing and keeps no best model; remove the "
        "key "
        "(--set trainer.save_best=)";
  }
  if (problem.empty()) return absl::OkStatus();
  return Misuse(absl::InvalidArgumentError(plan::WithPlace(places, problem)));
}

// Refuses, or warns of, a recording that is too large for this machine.
absl::Status CheckRecordingFits(const RunOptions& options, const config::v1::RunConfig& config,
                                const config::Places& places, const model::ModelSpec& spec,
                                const driver::Recording& recording) {
  // The plan is for the recorded samples, not for those that the configuration would generate.
  int prompt = 1, completion = 1;
  size_t samples = 1;
  for (const auto& step : recording.steps) {
    samples = std::max(samples, step.size());
    for (const common::v1::Sample& sample : step) {
      int after_prompt = 0;
      for (int i = 1; i < sample.segments_size(); ++i) {
        after_prompt += sample.segments(i).token_ids_size();
      }
      prompt = std::max(prompt, sample.segments(0).token_ids_size());
      completion = std::max(completion, after_prompt);
    }
  }
  config::v1::RunConfig recorded = config;
  const int64_t n = std::max<int64_t>(1, config.rollout().n());
  recorded.mutable_data()->set_max_prompt_length(prompt);
  recorded.mutable_data()->set_train_batch_size((static_cast<int64_t>(samples) + n - 1) / n);
  recorded.mutable_rollout()->set_max_tokens(completion);
  recorded.clear_environment();
  return CheckMachine(options,
                      {.config = recorded,
                       .places = places,
                       .spec = spec,
                       .longest_prompt = prompt,
                       .needs_rollouts = false},
                      {.supervised = true});
}

absl::Status RunReplay(const ReplayOptions& options) {
  Session session;
  config::Places places;
  ASSIGN_OR_RETURN(config::v1::RunConfig config, ResolveConfig(options.run, {}, &places));
  RETURN_IF_ERROR(CheckKeys(config, places));
  RETURN_IF_ERROR(CheckTeacherKeys("replay", config, places));
  ASSIGN_OR_RETURN(const io::ModelConfig model, io::ReadModelConfig(config.model().path()));
  ASSIGN_OR_RETURN(const model::ModelSpec spec, model::ParseModelSpec(model.json, model.path));
  std::optional<model::RoutedLayout> routed;
  if (config.actor().router_replay() == config::v1::ROUTER_REPLAY_R3) {
    absl::StatusOr<model::RoutedLayout> layout = model::RoutedLayout::Of(spec);
    if (!layout.ok()) {
      return Misuse(absl::InvalidArgumentError(plan::WithPlace(
          places, absl::StrCat("actor.router_replay: ", layout.status().message()))));
    }
    routed = *std::move(layout);
  }
  ASSIGN_OR_RETURN(const driver::Recording recording,
                   driver::ReadRecording(options.input, config.data().train_batch_size(),
                                         routed.has_value() ? &*routed : nullptr));
  const auto& steps = recording.steps;
  // One pass over the recording, unless the number of steps is stated: then it is repeated.
  const int64_t total_steps = places.count("trainer.total_steps") > 0
                                  ? config.trainer().total_steps()
                                  : static_cast<int64_t>(steps.size());
  config.mutable_trainer()->set_total_steps(total_steps);
  RETURN_IF_ERROR(CheckRecordingFits(options.run, config, places, spec, recording));
  driver::Progress progress("replay", total_steps, options.run.quiet);
  AllowResumeFolder(options.run, config);
  ASSIGN_OR_RETURN(RunStart start, PrepareRunFolder(options.run, config, session, progress));
  driver::RunFolder& folder = start.folder;
  RETURN_IF_ERROR(
      session.Explain(session.Open(config, {.local = options.run.local, .needs_rollouts = false})));
  RETURN_IF_ERROR(session.Explain(
      session.Drive({.run_id = start.run_id,
                     .run_dir = folder.path(),
                     .resumes = options.run.resume,
                     .take_over = options.run.take_over,
                     .note = [&progress](const std::string& text) { progress.Note(text); }})));
  const auto num_steps = static_cast<int64_t>(steps.size());
  RETURN_IF_ERROR(ReserveModelSpace(config, start, session));
  driver::RunIdentity identity;
  identity.command = "replay";
  identity.seed = config.seed();
  identity.num_prompts = num_steps;
  ASSIGN_OR_RETURN(identity.inputs, driver::DigestModelInputs(config));
  driver::AddDataInputs(driver::kDataInput, {recording.file}, identity.inputs);
  identity.allow_changed = {options.run.allow_changed.begin(), options.run.allow_changed.end()};
  ASSIGN_OR_RETURN(const std::optional<driver::ResumePoint> resume,
                   ResumeIfAsked(start, identity, session, progress));
  ASSIGN_OR_RETURN(
      const int64_t version_shift,
      driver::VersionShift(session.trainer(), resume.has_value() ? &*resume : nullptr));
  driver::CheckpointSchedule checkpoints(config, session.trainer(), folder, progress,
                                         identity.inputs);
  const auto train = [&]() -> absl::Status {
    for (int64_t step = resume.has_value() ? resume->state.step() + 1 : 1; step <= total_steps;
         ++step) {
      if (session.interrupted()) return absl::CancelledError("interrupted");
      ASSIGN_OR_RETURN(const auto response,
                       session.trainer().TrainStep(step, trainer::v1::OBJECTIVE_POLICY_GRADIENT,
                                                   steps[(step - 1) % num_steps], total_steps,
                                                   recording.images));
      RETURN_IF_ERROR(folder.Begin());  // the trainer has taken the step
      driver::Metrics metrics(response.metrics().begin(), response.metrics().end());
      metrics["training/policy_version"] =
          static_cast<double>(response.policy_version() - version_shift);
      if (response.has_checkpoint()) checkpoints.Note(response.checkpoint(), metrics);
      driver::v1::DriverState state;
      state.set_command("replay");
      state.set_seed(config.seed());
      state.set_num_prompts(num_steps);
      state.set_prompt_position(step);
      RETURN_IF_ERROR(checkpoints.AfterStep(step, std::move(state), metrics));
      RETURN_IF_ERROR(folder.WriteMetrics(step, metrics));
      progress.AddTokens(static_cast<int64_t>(metrics["perf/total_num_tokens"]));
      progress.Update(step, {absl::StrFormat("loss %.4f", metrics["actor/loss"])});
      if (!options.run.quiet) PrintStep(step, metrics);
    }
    return absl::OkStatus();
  };
  if (const absl::Status trained = train(); !trained.ok()) {
    if (session.interrupted()) checkpoints.SaveLast();
    return session.Explain(trained);
  }
  // An interrupt during the last step finds nothing left to save but the model.
  if (const absl::Status saved = checkpoints.SaveModel(); !saved.ok()) {
    return session.Explain(saved);
  }
  if (options.run.quiet) {
    std::printf("%s", io::ToJsonLine({{"steps", total_steps},
                                      {"run_dir", folder.path()},
                                      {"model", folder.model_path()}})
                          .c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddReplay(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("replay", "Trains on recorded samples");
  auto options = std::make_shared<ReplayOptions>();
  AddRunOptions(*command, options->run);
  AddQuietOption(*command, options->run);
  AddResumeOption(*command, options->run);
  AddForceOption(*command, options->run);
  command
      ->add_option("--input", options->input,
                   "JSONL of prompt_ids, response_ids (or segments), rewards or advantages, "
                   "logprobs, step, group, index, the format of run_dir/rollouts; or that folder")
      ->required();
  command->callback([&runner, options] { runner = [options] { return RunReplay(*options); }; });
}

}  // namespace tandem::commands
