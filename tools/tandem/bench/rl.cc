// tandem bench rl: seconds of a whole training step, on the run that a configuration describes.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/commands/run_checks.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/commands/teacher_checks.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/training_loop.h"

namespace tandem::bench {
namespace {

struct RlOptions {
  commands::RunOptions run;
  int64_t steps = 20;
};

absl::Status RunRl(const RlOptions& options) {
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  commands::RunOptions run = options.run;
  run.overrides.insert(run.overrides.end(),
                       {absl::StrCat("trainer.total_steps=", options.steps), "trainer.test_freq=0",
                        "trainer.save_freq=0", "trainer.save_interval_seconds=0",
                        absl::StrCat("run_dir=", scratch.path())});
  config::FileNeeds files;
  files.train_files = true;
  config::Places places;
  ASSIGN_OR_RETURN(const config::v1::RunConfig config,
                   commands::ResolveConfig(run, files, &places));
  RETURN_IF_ERROR(commands::CheckTeacherKeys("bench rl", config, places));
  absl::StatusOr<std::unique_ptr<driver::Rewarder>> rewarder = driver::Rewarder::Create(
      config, /*log_path=*/"", [&session] { return session.interrupted(); });
  if (!rewarder.ok()) return commands::Misuse(rewarder.status());
  RETURN_IF_ERROR(
      (*rewarder)->Check(driver::kRewardServiceWait, [&session] { return session.interrupted(); }));
  ASSIGN_OR_RETURN(auto tokenizer, driver::LoadTokenizerIfAny(config.model().path()));
  ASSIGN_OR_RETURN(const io::ModelConfig model, io::ReadModelConfig(config.model().path()));
  ASSIGN_OR_RETURN(const model::ModelSpec spec, model::ParseModelSpec(model.json, model.path));
  ASSIGN_OR_RETURN(
      const auto episodes,
      driver::Episodes::Create(config, tokenizer.get(), commands::LongestSequence(config, spec)));
  RETURN_IF_ERROR(
      episodes->Check(driver::kEnvironmentWait, [&session] { return session.interrupted(); }));
  driver::RowNeeds needs = {.answer = driver::NeedsAnswer(config.reward()),
                            .check_answer = driver::AnswerCheckOf(config.reward())};
  needs.keeps_chat = driver::ReadsMessages(config.reward());
  episodes->AddNeeds(needs);
  const driver::UrlImages urls(driver::ImageStore(config.run_dir() + "/images"),
                               images::ImageFetcher(),
                               [&session] { return session.interrupted(); });
  ASSIGN_OR_RETURN(const std::unique_ptr<driver::ImageReader> images,
                   driver::ImageReader::Create(config.model().path(), tokenizer.get(),
                                               config.data().allow_urls() ? &urls : nullptr));
  needs.images = images.get();
  ASSIGN_OR_RETURN(driver::PromptSource source,
                   driver::PromptSource::Load(
                       {config.data().train_files().begin(), config.data().train_files().end()},
                       config.data(), tokenizer.get(), config.seed(), needs));
  ASSIGN_OR_RETURN(driver::RunFolder folder, driver::RunFolder::Create(config));
  RETURN_IF_ERROR(episodes->Start(config.run_dir() + "/logs", driver::kEnvironmentWait,
                                  [&session] { return session.interrupted(); }));
  RETURN_IF_ERROR(session.Explain(
      session.Open(config, {.local = run.local || config.trainer().endpoint().empty(),
                            .served_folders = (*rewarder)->served_folders()})));
  RETURN_IF_ERROR(session.Explain((*rewarder)->Connect(
      session.address_of_served(), [&session] { return session.interrupted(); })));
  driver::Progress progress("bench rl", options.steps);
  std::map<std::string, std::vector<double>> phases;
  std::vector<double> step_seconds;
  const driver::RunInputs inputs;  // no checkpoint is saved
  const driver::LoopContext context{
      .config = config,
      .trainer = session.trainer(),
      .fleet = session.fleet_or_null(),
      .rewarder = rewarder->get(),
      .episodes = episodes.get(),
      .train = source,
      .test = nullptr,
      .folder = folder,
      .progress = progress,
      .resume = nullptr,
      .inputs = inputs,
      .interrupted = [&session] { return session.interrupted(); },
      .on_step =
          [&](int64_t step, const driver::Metrics& metrics) {
            if (step <= std::min<int64_t>(1, options.steps - 1)) return;  // the first warms up
            for (const auto& [name, value] : metrics) {
              if (name == "timing_s/step") step_seconds.push_back(value);
              if (name.rfind("timing_s/", 0) == 0) phases[name.substr(9)].push_back(value);
            }
          },
      .sees_images = spec.vision.has_value(),
  };
  const absl::StatusOr<driver::RunSummary> summary = driver::RunReinforcement(context);
  RETURN_IF_ERROR(session.Explain(summary.status()));
  nlohmann::json medians = nlohmann::json::object();
  for (const auto& [name, values] : phases) medians[name] = Median(values);
  double total = 0;
  for (const double seconds : step_seconds) total += seconds;
  const double mean = total / static_cast<double>(std::max<size_t>(1, step_seconds.size()));
  const double samples =
      static_cast<double>(config.data().train_batch_size() * config.rollout().n());
  const nlohmann::json line = {{"bench", "rl"},
                               {"steps", options.steps},
                               {"seconds_per_step", mean},
                               {"median_seconds_per_step", Median(step_seconds)},
                               {"samples_per_step", samples},
                               {"samples_per_second", samples / mean},
                               {"generated_tokens_per_second", progress.tokens_per_second()},
                               {"final_reward", summary->rewards.back()},
                               {"phases", medians}};
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddRl(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand("rl", "Duration of whole RL steps");
  auto options = std::make_shared<RlOptions>();
  commands::AddRunOptions(*command, options->run);
  command->add_option("--steps", options->steps, "Training steps")->capture_default_str();
  SetRun(*command, runner, options, RunRl);
}

}  // namespace tandem::bench
