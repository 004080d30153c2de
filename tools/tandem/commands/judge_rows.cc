#include "tools/tandem/commands/judge_rows.h"

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/io/json_text.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/dataset/row_keys.h"
#include "tools/tandem/driver/prompt_text.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/reward/judge.h"

namespace tandem::commands {
namespace {

// Rows that are judged together: enough for any reward.judge.concurrency, few enough that rewards show
// while others are judged.
constexpr size_t kRowsAtOnce = 256;

absl::StatusOr<std::string> PromptOf(const nlohmann::json& row) {
  const nlohmann::json* const value = dataset::FindKey(row, "prompt");
  if (value == nullptr) return dataset::MissingKey(row, "prompt", "a judge reads it");
  driver::Prompt prompt;
  if (value->is_array() && !value->empty() && value->front().is_object()) {
    prompt.chat.emplace().messages = *value;
  } else if (value->is_string()) {
    prompt.text = *value;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt: expected text or messages, which a judge reads, found ", value->type_name()));
  }
  return driver::PromptText(prompt);
}

absl::StatusOr<reward::JudgedText> TextOfRow(const io::JsonFields& row, bool needs_answer) {
  reward::JudgedText text;
  ASSIGN_OR_RETURN(text.prompt, PromptOf(row.json()));
  ASSIGN_OR_RETURN(text.completion, row.String("completion"));
  if (const nlohmann::json* const answer = dataset::FindKey(row.json(), "answer")) {
    const absl::StatusOr<std::string> as_text = dataset::TextOf(*answer, "answer");
    if (!as_text.ok() && needs_answer) return as_text.status();
    if (as_text.ok()) text.answer = *as_text;
  } else if (needs_answer) {
    return dataset::MissingKey(row.json(), "answer", "the judge's template shows it");
  }
  return text;
}

// Prints the rewards of rows that are judged together, and counts.
class Printer {
 public:
  explicit Printer(reward::Judge& judge) : judge_(judge) {}

  void JudgeAll(const std::vector<reward::JudgedText>& texts) {
    for (const absl::StatusOr<double>& reward : judge_.Score(texts)) {
      ++num_rows_;
      nlohmann::json line = {{"reward", nullptr}};
      if (reward.ok()) {
        line["reward"] = *reward;
      } else {
        line["error"] = std::string(reward.status().message());
        if (num_failed_++ == 0) first_ = reward.status();
      }
      std::printf("%s", io::ToJsonLine(line).c_str());
    }
    std::fflush(stdout);
  }

  absl::Status Failures() const {
    if (num_failed_ == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(num_failed_, " of ",
                                               text::Count(num_rows_, "judgement"),
                                               " failed; the first: ", first_.message()));
  }

 private:
  reward::Judge& judge_;
  int64_t num_rows_ = 0;
  int64_t num_failed_ = 0;
  absl::Status first_;
};

}  // namespace

absl::Status JudgeRows(const RunOptions& options, const std::string& input) {
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, ResolveConfig(options, {.model = false}));
  const driver::RewardPart part = driver::RewardParts(config.reward()).front();
  absl::StatusOr<reward::JudgeOptions> judge_options =
      reward::MakeJudgeOptions(part.judge, part.key, absl::Seconds(config.reward().timeout_s()));
  if (!judge_options.ok()) return Misuse(judge_options.status());
  const bool needs_answer = judge_options->text.needs_answer();
  reward::Judge judge(*std::move(judge_options));
  RETURN_IF_ERROR(judge.Check(driver::kRewardServiceWait, nullptr));
  Printer printer(judge);
  std::vector<reward::JudgedText> texts;
  RETURN_IF_ERROR(io::ForEachJsonLine(input, [&](const io::JsonFields& row) -> absl::Status {
    ASSIGN_OR_RETURN(texts.emplace_back(), TextOfRow(row, needs_answer));
    if (texts.size() == kRowsAtOnce) printer.JudgeAll(std::exchange(texts, {}));
    return absl::OkStatus();
  }));
  printer.JudgeAll(texts);
  return printer.Failures();
}

}  // namespace tandem::commands
