// tandem bench serve: latencies and losses of many clients of a rollout during weight updates.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/bench/new_version.h"
#include "tools/tandem/bench/serving_load.h"
#include "tools/tandem/bench/timed_generation.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"

namespace tandem::bench {
namespace {

// Interval between checks of the clock and of an interrupt.
constexpr absl::Duration kLook = absl::Milliseconds(50);

struct ServeOptions {
  std::string model;
  std::string endpoint;
  std::string trainer;
  std::string dtype = "float32";
  ServingWork work;
  double seconds = 30;
  double update_seconds = 3;
  std::vector<std::string> overrides;
};

struct Updates {
  std::vector<double> seconds, pauses;
};

nlohmann::json Latency(std::vector<double>& seconds) {
  return {{"p50", Percentile(seconds, 0.5)},
          {"p95", Percentile(seconds, 0.95)},
          {"p99", Percentile(seconds, 0.99)},
          {"max", Percentile(seconds, 1)}};
}

absl::StatusOr<config::v1::RunConfig> Configure(const ServeOptions& options,
                                                const std::string& run_dir) {
  commands::RunOptions run;
  run.overrides = {absl::StrCat("model.dtype=", options.dtype), absl::StrCat("run_dir=", run_dir)};
  RETURN_IF_ERROR(commands::AddFamilies(options.overrides));
  if (!options.model.empty()) {
    ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(options.model));
    ASSIGN_OR_RETURN(const model::ModelSpec spec,
                     model::ParseModelSpec(model_config.json, model_config.path));
    ASSIGN_OR_RETURN(const std::vector<std::string> room,
                     RoomFor({.batch = options.work.clients,
                              .prompt_tokens = options.work.prompt_tokens,
                              .new_tokens = options.work.new_tokens},
                             spec, options.dtype == "bfloat16" ? 2 : 4));
    run.overrides.insert(run.overrides.end(), room.begin(), room.end());
    run.overrides.push_back(absl::StrCat("model.path='", options.model, "'"));
  } else {
    run.overrides.push_back(absl::StrCat("rollout.endpoints=[\"", options.endpoint, "\"]"));
    run.overrides.push_back(absl::StrCat("trainer.endpoint='", options.trainer, "'"));
  }
  run.overrides.insert(run.overrides.end(), options.overrides.begin(), options.overrides.end());
  config::FileNeeds needs;
  needs.model = !options.model.empty();
  return commands::ResolveConfig(run, needs);
}

// Publishes a new version periodically, until `end`.
absl::StatusOr<Updates> UpdateUntil(absl::Time end, const ServeOptions& options, int64_t vocab_size,
                                    commands::Session& session) {
  Updates updates;
  int64_t step = 0;
  const bool publishes =
      options.update_seconds > 0 && (!options.model.empty() || !options.trainer.empty());
  if (publishes) {
    ASSIGN_OR_RETURN(const auto info, session.trainer().GetModelInfo());
    step = info.step();
  }
  const absl::Duration pause = absl::Seconds(options.update_seconds);
  absl::Time next = publishes ? absl::Now() + pause : absl::InfiniteFuture();
  while (absl::Now() < end && !session.interrupted()) {
    absl::SleepFor(std::min<absl::Duration>(kLook, end - absl::Now()));
    if (absl::Now() < next) continue;
    next += pause;
    RETURN_IF_ERROR(MakeNewVersion(session.trainer(), ++step, vocab_size));
    ASSIGN_OR_RETURN(const auto update, session.trainer().PublishWeights(session.fleet()));
    updates.seconds.push_back(update.seconds());
    for (const auto& replica : update.replicas()) updates.pauses.push_back(replica.pause_seconds());
  }
  return updates;
}

absl::Status RunServe(const ServeOptions& options) {
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  if (options.model.empty() == options.endpoint.empty() ||
      (!options.model.empty() && !options.trainer.empty())) {
    return commands::Misuse(absl::InvalidArgumentError(
        "give either --model DIR (starts a trainer and a rollout) or --endpoint HOST:PORT (a "
        "running rollout), with --trainer HOST:PORT to update its weights"));
  }
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, Configure(options, scratch.path()));
  RETURN_IF_ERROR(session.Explain(
      session.Open(config, {.local = !options.model.empty(),
                            .needs_trainer = !options.model.empty() || !options.trainer.empty()})));
  if (!options.model.empty()) {
    RETURN_IF_ERROR(session.Explain(session.trainer().PublishWeights(session.fleet()).status()));
  }
  std::vector<std::string> replicas;
  int64_t vocab_size = 0;
  for (const auto& replica : session.fleet().replicas()) {
    replicas.push_back(replica.address);
    ASSIGN_OR_RETURN(const auto info, driver::RolloutFleet::GetServerInfo(replica));
    vocab_size = info.vocab_size();
  }

  ServingLoad load(replicas, options.work, vocab_size);
  load.Start();
  absl::StatusOr<Updates> updates =
      UpdateUntil(absl::Now() + absl::Seconds(options.seconds), options, vocab_size, session);
  ServingResult result =
      load.Finish(session.interrupted() ? absl::Now() : absl::Now() + options.work.timeout);
  RETURN_IF_ERROR(session.Explain(updates.status()));
  const nlohmann::json line = {
      {"bench", "serve"},
      {"model", options.model},
      {"dtype", options.dtype},
      {"clients", options.work.clients},
      {"prompt_tokens", options.work.prompt_tokens},
      {"new_tokens", options.work.new_tokens},
      {"seconds", result.seconds},
      {"requests", result.num_requests},
      {"lost_requests", result.num_lost},
      {"tokens", result.num_tokens},
      {"tokens_per_second", static_cast<double>(result.num_tokens) / result.seconds},
      {"time_to_first_token", Latency(result.first_token_s)},
      {"inter_token_latency", Latency(result.inter_token_s)},
      {"updates", updates->seconds.size()},
      {"update_seconds", Latency(updates->seconds)},
      {"pause_seconds", Latency(updates->pauses)},
      {"oldest_version", result.oldest_version},
      {"newest_version", result.newest_version},
      {"requests_of_several_versions", result.num_mixed}};
  std::printf("%s\n", io::JsonText(line).c_str());
  return session.Explain(result.first_loss);
}

}  // namespace

void AddServe(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand(
      "serve", "Latencies of many clients during weight updates; exits 1 if a request is lost");
  auto options = std::make_shared<ServeOptions>();
  command->add_option("--model", options->model,
                      "Hugging Face folder; starts a trainer and a rollout for it");
  command->add_option("--endpoint", options->endpoint, "HOST:PORT of a running rollout");
  command->add_option("--trainer", options->trainer,
                      "HOST:PORT of its trainer, which then trains and updates weights; without it "
                      "there are no updates");
  command->add_option("--dtype", options->dtype, "float32 or bfloat16")->capture_default_str();
  command->add_option("--clients", options->work.clients, "Concurrent streams")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->work.prompt_tokens, "Length of each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--new-tokens", options->work.new_tokens, "Tokens to sample per request")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--seconds", options->seconds,
                   "Clients start new requests for this long; running ones then finish")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  command
      ->add_option("--update-seconds", options->update_seconds,
                   "Seconds between two weight updates; 0: none")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--set", options->overrides, "Overrides a configuration value")
      ->allow_extra_args(false);
  SetRun(*command, runner, options, RunServe);
}

}  // namespace tandem::bench
