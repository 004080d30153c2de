// tandem reward: scores completions with a built-in reward, a Python function, a judge or a reward model.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/image_url_option.h"
#include "tools/tandem/commands/judge_rows.h"
#include "tools/tandem/commands/model_reward_rows.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/dataset/row_keys.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/reward/python_reward.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::commands {
namespace {

struct RewardOptions {
  std::string name;
  std::string input;
  std::string pattern;
  std::string path;
  std::string function;
  std::string python = "python3";
  double timeout_s = 60;
  bool has_timeout = false;
  bool allow_image_urls = false;
  RunOptions run;  // configuration of the rewards judge and model
};

constexpr char kAnswerKey[] = "answer";

// The row's answer, as `train` reads it. Without `is_needed`, "" for a row without text there.
absl::StatusOr<std::string> AnswerOf(const io::JsonFields& row, bool is_needed,
                                     const std::string& asked_by) {
  const nlohmann::json* const value = dataset::FindKey(row.json(), kAnswerKey);
  if (value == nullptr) {
    if (!is_needed) return "";
    return dataset::MissingKey(row.json(), kAnswerKey, asked_by);
  }
  absl::StatusOr<std::string> text = dataset::TextOf(*value, kAnswerKey);
  if (!text.ok() && !is_needed) return "";
  return text;
}

absl::Status RunBuiltIn(const RewardOptions& options) {
  absl::StatusOr<reward::RewardFn> judge =
      reward::FindReward(options.name, {.pattern = options.pattern});
  if (!judge.ok()) return Misuse(judge.status());
  const bool needs_answer = reward::NeedsAnswer(options.name, {.pattern = options.pattern});
  const reward::AnswerCheck check =
      reward::FindAnswerCheck(options.name, {.pattern = options.pattern});
  const std::string asked_by = absl::StrCat("the reward ", options.name, " compares with it");
  int64_t num_rewards = 0;
  double first = 0;
  bool all_equal = true;
  RETURN_IF_ERROR(
      io::ForEachJsonLine(options.input, [&](const io::JsonFields& row) -> absl::Status {
        reward::RewardInput input;
        ASSIGN_OR_RETURN(input.completion, row.String("completion"));
        ASSIGN_OR_RETURN(input.answer, AnswerOf(row, needs_answer, asked_by));
        RETURN_IF_ERROR(check(input.answer));
        ASSIGN_OR_RETURN(input.finish_reason, row.StringOr("finish_reason", "stop"));
        ASSIGN_OR_RETURN(const double value, (*judge)(input));
        std::printf("%s", io::ToJsonLine({{"reward", value}}).c_str());
        if (num_rewards++ == 0) first = value;
        all_equal = all_equal && value == first;
        return absl::OkStatus();
      }));
  if (num_rewards > 1 && all_equal) {
    absl::FPrintF(stderr, "note: every one of the %d rewards is %g\n", num_rewards, first);
  }
  return absl::OkStatus();
}

absl::Status ImageUrlsNeedAJudge() {
  return Misuse(absl::InvalidArgumentError(
      "--allow-image-urls is for --name judge; other rewards see no images"));
}

absl::Status RunPython(const RewardOptions& options) {
  reward::PythonReward judge({.function = {.python = options.python,
                                           .path = std::filesystem::absolute(options.path),
                                           .name = options.function},
                              .timeout = absl::Seconds(options.timeout_s)});
  int64_t number = 0;
  return io::ForEachJsonLine(options.input, [&](const io::JsonFields& row) -> absl::Status {
    reward::PythonGroup group{.name = absl::StrCat("row ", ++number), .row = row.json()};
    const auto prompt = group.row.find("prompt");
    if (prompt != group.row.end() && prompt->is_string()) group.prompt = *prompt;
    ASSIGN_OR_RETURN(group.answer, AnswerOf(row, /*is_needed=*/false, ""));
    ASSIGN_OR_RETURN(group.completions.emplace_back(), row.String("completion"));
    group.completion_ids.emplace_back();
    ASSIGN_OR_RETURN(const auto rewards, judge.Score({group}));
    nlohmann::json line = {{"reward", nullptr}};
    if (rewards[0][0].has_value()) line["reward"] = *rewards[0][0];
    std::printf("%s", io::ToJsonLine(line).c_str());
    return absl::OkStatus();
  });
}

// A reward with a section of the configuration.
absl::Status RunConfigured(const RewardOptions& options) {
  const bool is_judge = options.name == driver::kJudgeReward;
  if (!options.pattern.empty()) {
    return Misuse(absl::InvalidArgumentError(
        "--pattern is for --name regex; a judge's is --set reward.judge.pattern=..."));
  }
  if (!is_judge && options.allow_image_urls) return ImageUrlsNeedAJudge();
  RunOptions run = options.run;
  std::vector<std::string> flags = {absl::StrCat("reward.name=", options.name)};
  if (options.has_timeout) flags.push_back(absl::StrCat("reward.timeout_s=", options.timeout_s));
  run.overrides.insert(run.overrides.begin(), flags.begin(), flags.end());
  return is_judge ? JudgeRows(run, options.input, FetchingIf(options.allow_image_urls))
                  : ModelRewardRows(run, options.input);
}

absl::Status RunReward(const RewardOptions& options) {
  if (options.name.empty() == options.path.empty()) {
    return Misuse(absl::InvalidArgumentError(
        "expected --name (a built-in reward, judge or model) or --path (a Python file), one of the "
        "two"));
  }
  if (options.name == driver::kJudgeReward || options.name == driver::kModelReward) {
    return RunConfigured(options);
  }
  if (!options.run.config_files.empty() || !options.run.overrides.empty()) {
    return Misuse(absl::InvalidArgumentError(
        "--config and --set configure --name judge and --name model; other rewards have flags"));
  }
  if (options.allow_image_urls) return ImageUrlsNeedAJudge();
  return options.path.empty() ? RunBuiltIn(options) : RunPython(options);
}

}  // namespace

void AddReward(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand(
      "reward",
      "Scores completions with a built-in reward, a Python function, a judge or a reward model");
  auto options = std::make_shared<RewardOptions>();
  command->add_option("--name", options->name,
                      absl::StrCat("One of ", absl::StrJoin(reward::RewardNames(), ", "), ", ",
                                   driver::kJudgeReward, ", ", driver::kModelReward));
  command->add_option("--path", options->path, "Python file, as reward.path");
  command->add_option("--function", options->function, "Function in --path, as reward.function");
  command->add_option("--python", options->python, "Interpreter, as reward.python")
      ->capture_default_str();
  const CLI::Option* const timeout =
      command->add_option("--timeout", options->timeout_s, "Seconds of a call, as reward.timeout_s")
          ->check(CLI::PositiveNumber)
          ->capture_default_str();
  command
      ->add_option(
          "--input", options->input,
          R"(JSONL of {"prompt", "completion", "answer", "finish_reason"}, for a judge with "images", for a )"
          R"(model also of {"ids"}; /dev/stdin for a pipe)")
      ->required();
  command->add_option("--pattern", options->pattern, "Pattern of the reward regex");
  AddImageUrlsOption(*command, options->allow_image_urls);
  command->add_option("--config", options->run.config_files,
                      "With --name judge or model: YAML files with the section reward.judge or "
                      "reward.model, later ones win");
  command
      ->add_option("--set", options->run.overrides,
                   "With --name judge or model: overrides a value: "
                   "reward.judge.url=http://127.0.0.1:8000/v1, reward.model.path=DIR")
      ->allow_extra_args(false);
  command->callback([&runner, options, timeout] {
    options->has_timeout = timeout->count() > 0;
    runner = [options] { return RunReward(*options); };
  });
}

}  // namespace tandem::commands
