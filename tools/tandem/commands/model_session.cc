#include "tools/tandem/commands/model_session.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/run_options.h"

namespace tandem::commands {

void AddModelOptions(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model, "Hugging Face folder; starts a service for it");
  command.add_option("--endpoint", options.endpoint, "HOST:PORT of a running service");
  command.add_option("--dtype", options.dtype, "float32 or bfloat16")->capture_default_str();
  command
      .add_option("--numerics", options.numerics,
                  "fast, or exact: a token's log-prob has the same bits in trainer and rollout")
      ->capture_default_str();
  command.add_option("--set", options.overrides, "Overrides a configuration value of the service")
      ->allow_extra_args(false);
}

absl::Status OpenModelSession(const ModelOptions& options, Side side, const ScratchFolder& scratch,
                              Session& session, config::v1::RunConfig& config) {
  if (options.model.empty() == options.endpoint.empty()) {
    return Misuse(absl::InvalidArgumentError(
        "give either --model DIR (starts a service) or --endpoint HOST:PORT (a running service)"));
  }
  if (side == Side::kBoth && !options.endpoint.empty()) {
    return Misuse(absl::InvalidArgumentError(
        "--endpoint names one service, but both sides are wanted: give --model DIR"));
  }
  RunOptions run;
  run.overrides.push_back(absl::StrCat("model.dtype=", options.dtype));
  run.overrides.push_back(absl::StrCat("numerics=", options.numerics));
  run.overrides.push_back(absl::StrCat("run_dir=", scratch.path()));
  if (!options.model.empty()) {
    run.overrides.push_back(absl::StrCat("model.path='", options.model, "'"));
  } else if (side == Side::kTrainer) {
    run.overrides.push_back(absl::StrCat("trainer.endpoint=", options.endpoint));
  } else {
    run.overrides.push_back(absl::StrCat("rollout.endpoints=[\"", options.endpoint, "\"]"));
  }
  run.overrides.insert(run.overrides.end(), options.overrides.begin(), options.overrides.end());
  config::FileNeeds needs;
  needs.model = !options.model.empty();
  ASSIGN_OR_RETURN(config, ResolveConfig(run, needs));
  SessionOptions session_options;
  session_options.local = !options.model.empty();
  session_options.needs_trainer = side != Side::kRollout;
  session_options.needs_rollouts = side != Side::kTrainer;
  if (side != Side::kTrainer) session_options.rollout_model = config.model().path();
  return session.Open(config, session_options);
}

}  // namespace tandem::commands
