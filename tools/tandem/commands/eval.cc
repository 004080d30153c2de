// tandem eval: the mean reward of a model's completions on a data set.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/data_checks.h"
#include "tools/tandem/commands/run_checks.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/driver/evaluator.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/part_scores.h"
#include "tools/tandem/driver/reward_parts.h"

namespace tandem::commands {
namespace {

struct EvalOptions {
  RunOptions run;
  std::string model;
  std::vector<std::string> data;
  std::string reward;
};

// The flags are shorthands for configuration values; they win over --config, --set wins over them.
RunOptions WithShorthands(const EvalOptions& options) {
  RunOptions run = options.run;
  std::vector<std::string> shorthands;
  if (!options.model.empty()) {
    shorthands.push_back(absl::StrCat("model.path='", options.model, "'"));
    if (run.config_files.empty()) shorthands.push_back("model.dtype=float32");
  }
  if (!options.data.empty()) {
    std::string list;
    for (const std::string& file : options.data) {
      absl::StrAppend(&list, list.empty() ? "" : ", ", "'", file, "'");
    }
    shorthands.push_back(absl::StrCat("data.test_files=[", list, "]"));
  }
  if (!options.reward.empty()) shorthands.push_back(absl::StrCat("reward.name=", options.reward));
  run.overrides.insert(run.overrides.begin(), shorthands.begin(), shorthands.end());
  return run;
}

absl::Status RunEval(const EvalOptions& options) {
  Session session;
  ScratchFolder scratch(&session);
  config::FileNeeds needs;
  needs.test_files = true;
  ASSIGN_OR_RETURN(config::v1::RunConfig config, ResolveConfig(WithShorthands(options), needs));
  config.set_run_dir(scratch.path());
  absl::StatusOr<std::unique_ptr<driver::Rewarder>> rewarder = driver::Rewarder::Create(
      config, /*log_path=*/"", [&session] { return session.interrupted(); });
  if (!rewarder.ok()) return Misuse(rewarder.status());
  RETURN_IF_ERROR(
      (*rewarder)->Check(driver::kRewardServiceWait, [&session] { return session.interrupted(); }));
  ASSIGN_OR_RETURN(auto tokenizer, driver::LoadTokenizerIfAny(config.model().path()));
  ASSIGN_OR_RETURN(const io::ModelConfig model, io::ReadModelConfig(config.model().path()));
  ASSIGN_OR_RETURN(const model::ModelSpec spec, model::ParseModelSpec(model.json, model.path));
  ASSIGN_OR_RETURN(const auto episodes, driver::Episodes::Create(config, tokenizer.get(),
                                                                 LongestSequence(config, spec)));
  RETURN_IF_ERROR(
      episodes->Check(driver::kEnvironmentWait, [&session] { return session.interrupted(); }));
  driver::RowNeeds needs_of_rows = {.answer = driver::NeedsAnswer(config.reward()),
                                    .check_answer = driver::AnswerCheckOf(config.reward())};
  needs_of_rows.keeps_chat = driver::ReadsMessages(config.reward());
  episodes->AddNeeds(needs_of_rows);
  const driver::UrlImages urls(driver::ImageStore(scratch.path() + "/images"),
                               images::ImageFetcher(),
                               [&session] { return session.interrupted(); });
  ASSIGN_OR_RETURN(const std::unique_ptr<driver::ImageReader> images,
                   driver::ImageReader::Create(config.model().path(), tokenizer.get(),
                                               config.data().allow_urls() ? &urls : nullptr));
  if (images == nullptr && config.data().allow_urls()) {
    return Misuse(absl::InvalidArgumentError(
        "data.allow_urls: the model has no vision tower; remove the key"));
  }
  if (const std::string key = driver::RewardWithSight(config.reward());
      images == nullptr && !key.empty()) {
    return Misuse(absl::InvalidArgumentError(
        absl::StrCat(key, ": the model has no vision tower; remove the key")));
  }
  needs_of_rows.images = images.get();
  ASSIGN_OR_RETURN(const driver::PromptSource source,
                   driver::PromptSource::Load(
                       {config.data().test_files().begin(), config.data().test_files().end()},
                       config.data(), tokenizer.get(), config.seed(), needs_of_rows));
  RETURN_IF_ERROR(CheckImages("data.test_files", source, config, /*samples=*/true));
  SessionOptions session_options;
  // Rollouts that are up serve what they serve; otherwise the model's folder is served here.
  session_options.local = options.run.local || (config.rollout().endpoints().empty() &&
                                                config.rollout().endpoints_file().empty());
  session_options.needs_trainer = false;
  session_options.rollout_model = config.model().path();
  session_options.served_folders = (*rewarder)->served_folders();
  RETURN_IF_ERROR(episodes->Start(scratch.path(), driver::kEnvironmentWait,
                                  [&session] { return session.interrupted(); }));
  RETURN_IF_ERROR(session.Explain(session.Open(config, session_options)));
  RETURN_IF_ERROR(session.Explain((*rewarder)->Connect(
      session.address_of_served(), [&session] { return session.interrupted(); })));
  absl::StatusOr<driver::EvalResult> result =
      driver::Evaluate(config, source, session.fleet(), **rewarder,
                       /*while_waiting=*/nullptr, episodes.get());
  RETURN_IF_ERROR(session.Explain(result.status()));
  if (!options.run.quiet) {
    absl::FPrintF(stderr, "%s: mean %s %.4f over %s x %s, temperature %g\n", config.model().path(),
                  driver::RewardLabel(config.reward()), result->mean_reward,
                  text::Count(result->groups.size(), "prompt"),
                  text::Count(config.rollout().val_kwargs().n(), "sample"),
                  config.rollout().val_kwargs().temperature());
  }
  nlohmann::json line = {{"reward", result->mean_reward},
                         {"prompts", result->groups.size()},
                         {"samples", result->groups.size() * config.rollout().val_kwargs().n()}};
  if (result->num_unjudged > 0) line["dropped_prompts"] = result->num_unjudged;
  if (const auto scores = driver::MeanPartScores(result->groups); !scores.empty()) {
    line["scores"] = scores;
  }
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddEval(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("eval", "Mean reward of a model on a data set");
  auto options = std::make_shared<EvalOptions>();
  AddRunOptions(*command, options->run);
  AddQuietOption(*command, options->run);
  command->get_option("--config")->required(false);
  command->add_option("--model", options->model, "Hugging Face folder (model.path)");
  command->add_option("--data", options->data, "File, folder or pattern (data.test_files)")
      ->allow_extra_args(false);
  command->add_option("--reward", options->reward, "Name of the reward (reward.name)");
  command
      ->add_flag_callback(
          "--json", [] {}, "Accepted for uniformity: the output is always JSON")
      ->group("");
  command->callback([&runner, options] { runner = [options] { return RunEval(*options); }; });
}

}  // namespace tandem::commands
