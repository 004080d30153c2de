// tandem reward: judges completions with a built-in reward.
#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::commands {
namespace {

struct RewardOptions {
  std::string name;
  std::string input;
  std::string pattern;
};

absl::Status RunReward(const RewardOptions& options) {
  absl::StatusOr<reward::RewardFn> judge =
      reward::FindReward(options.name, {.pattern = options.pattern});
  if (!judge.ok()) return Misuse(judge.status());
  int64_t num_rewards = 0;
  double first = 0;
  bool all_equal = true;
  RETURN_IF_ERROR(
      io::ForEachJsonLine(options.input, [&](const io::JsonFields& row) -> absl::Status {
        reward::RewardInput input;
        ASSIGN_OR_RETURN(input.completion, row.String("completion"));
        ASSIGN_OR_RETURN(input.answer, row.StringOr("answer", ""));
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

}  // namespace

void AddReward(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("reward", "Scores completions with a built-in reward");
  auto options = std::make_shared<RewardOptions>();
  command
      ->add_option("--name", options->name,
                   absl::StrCat("One of ", absl::StrJoin(reward::RewardNames(), ", ")))
      ->required();
  command
      ->add_option("--input", options->input,
                   R"(JSONL of {"completion", "answer", "finish_reason"}; /dev/stdin for a pipe)")
      ->required();
  command->add_option("--pattern", options->pattern, "Pattern of the reward regex");
  command->callback([&runner, options] { runner = [options] { return RunReward(*options); }; });
}

}  // namespace tandem::commands
