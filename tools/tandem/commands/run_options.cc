#include "tools/tandem/commands/run_options.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/load.h"
#include "common/http/http_flags.h"
#include "common/model/families/family_table.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/run_inputs.h"

namespace tandem::commands {
namespace {

constexpr char kMisuseUrl[] = "tandem/misuse";

// Services and a resumed run may have other working directories: makes paths relative to this one
// absolute.
void MakePathsAbsolute(config::v1::RunConfig& config) {
  const auto make_absolute = [](std::string* path) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  };
  make_absolute(config.mutable_run_dir());
  make_absolute(config.mutable_model()->mutable_path());
  make_absolute(config.mutable_model()->mutable_family_file());
  if (config.has_critic()) make_absolute(config.mutable_critic()->mutable_model()->mutable_path());
  if (config.has_teacher()) {
    make_absolute(config.mutable_teacher()->mutable_path());
    for (auto& teacher : *config.mutable_teacher()->mutable_teachers()) {
      make_absolute(teacher.mutable_path());
    }
  }
  const auto make_reward_absolute = [&](auto& reward) {
    make_absolute(reward.mutable_path());
    if (reward.has_model()) make_absolute(reward.mutable_model()->mutable_path());
    if (!reward.has_judge()) return;
    make_absolute(reward.mutable_judge()->mutable_template_file());
    make_absolute(reward.mutable_judge()->mutable_cache());
  };
  make_reward_absolute(*config.mutable_reward());
  for (auto& one : *config.mutable_reward()->mutable_rewards()) make_reward_absolute(one);
}

}  // namespace

absl::Status Misuse(absl::Status status) {
  if (!status.ok()) status.SetPayload(kMisuseUrl, absl::Cord("1"));
  return status;
}

bool IsMisuse(const absl::Status& status) { return status.GetPayload(kMisuseUrl).has_value(); }

void AddRunOptions(CLI::App& command, RunOptions& options) {
  command.add_option("--config", options.config_files, "YAML files, later ones win")->required();
  command
      .add_option("--set", options.overrides,
                  "Overrides a configuration value: actor.optim.lr=3e-4")
      ->allow_extra_args(false);
  command.add_flag("--local", options.local,
                   "Starts the configured trainer ranks and rollout replicas on this machine");
}

void AddQuietOption(CLI::App& command, RunOptions& options) {
  command.add_flag(
      "--quiet", options.quiet,
      "Shows errors, warnings and the last line, which names the results; no progress");
}

void AddReplicaRanksOption(CLI::App& command, RunOptions& options) {
  command
      .add_option("--replica-ranks", options.replica_ranks,
                  "With --local: tensor-parallel ranks of each replica (4,2,1), instead of "
                  "rollout.replicas and rollout.tensor_model_parallel_size")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
}

void AddObservationOptions(CLI::App& command, RunOptions& options) {
  command.add_option(
      "--metrics", options.metrics,
      "HOST:PORT for Prometheus (GET /metrics); with --local the trainer's ranks and the rollouts "
      "take the following ports, or, for port 0, free ports, named in their logs");
  command.add_option("--openai-listen", options.openai_listen,
                     "With --local: HOST:PORT of the first rollout's OpenAI-compatible endpoint; "
                     "the other rollouts take the following ports");
  http::AddHttpFlags(command);
  command.add_flag("--trace", options.trace,
                   "Writes run_dir/trace.json for Perfetto: one trace per step, across all "
                   "processes that this command started");
}

void AddForceOption(CLI::App& command, RunOptions& options) {
  command.add_flag("--force", options.force,
                   "Starts although the plan does not fit in memory, or this machine has far too "
                   "few cores");
}

void AddResumeOption(CLI::App& command, RunOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--resume",
          [&options](const std::vector<std::string>& folders) {
            options.resume = true;
            if (!folders.empty()) options.resume_folder = folders[0];
          },
          "Resumes from run_dir's newest complete checkpoint, or from DIR")
      ->type_name("[DIR]")
      ->expected(0, 1);
  command.add_flag("--take-over", options.take_over,
                   "Takes trainer and rollouts from another run, even a live one; its driver is "
                   "refused from then on");
  command
      .add_option("--allow-changed", options.allow_changed,
                  absl::StrCat("With --resume: inputs that may differ from the checkpoint's: ",
                               absl::StrJoin(driver::InputKinds(), ", ")))
      ->delimiter(',')
      ->needs("--resume")
      ->check(CLI::IsMember(driver::InputKinds()));
}

absl::StatusOr<config::v1::RunConfig> ResolveConfig(const RunOptions& options,
                                                    const config::FileNeeds& needs,
                                                    config::Places* places) {
  config::Places own_places;
  if (places == nullptr) places = &own_places;
  std::vector<std::string> overrides = options.overrides;
  if (const auto& ranks = options.replica_ranks; !ranks.empty()) {
    if (!options.local) {
      return Misuse(
          absl::InvalidArgumentError("--replica-ranks needs --local; running rollouts report their "
                                     "number of ranks themselves"));
    }
    // What is planned for a rank is planned for one with the largest part.
    overrides.push_back(absl::StrCat("rollout.replicas=", ranks.size()));
    overrides.push_back(absl::StrCat("rollout.tensor_model_parallel_size=",
                                     *std::min_element(ranks.begin(), ranks.end())));
  }
  absl::StatusOr<config::v1::RunConfig> config =
      config::LoadRunConfig(options.config_files, overrides, places);
  if (!config.ok()) return Misuse(config.status());
  if (absl::Status names = driver::CheckRewardNames(config->reward()); !names.ok()) {
    const std::string message(names.message());
    const auto place = places->find(message.substr(0, message.find(':')));
    const std::string at = place == places->end() ? "" : absl::StrCat(place->second, ": ");
    return Misuse(absl::InvalidArgumentError(absl::StrCat(at, message)));
  }
  absl::Status files = config::CheckFiles(*config, needs, *places);
  if (!files.ok()) return Misuse(files);
  if (absl::Status added = model::AddFamilyFile(config->model().family_file()); !added.ok()) {
    return Misuse(added);
  }
  MakePathsAbsolute(*config);
  return config;
}

absl::Status AddFamilies(const std::vector<std::string>& overrides) {
  const absl::StatusOr<config::v1::RunConfig> config = config::LoadRunConfig({}, overrides);
  if (!config.ok()) return Misuse(config.status());
  return Misuse(model::AddFamilyFile(config->model().family_file()));
}

}  // namespace tandem::commands
