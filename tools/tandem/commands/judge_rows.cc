#include "tools/tandem/commands/judge_rows.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/images/chat/chat_images.h"
#include "common/images/image_source.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/reward_lines.h"
#include "tools/tandem/dataset/row_keys.h"
#include "tools/tandem/driver/prompt_text.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/reward/judge.h"

namespace tandem::commands {
namespace {

using nlohmann::ordered_json;

// The prompt's messages. A text is the only message of a user, whose images stand before it.
absl::StatusOr<ordered_json> MessagesOf(const nlohmann::json& row, const ordered_json& listed) {
  const nlohmann::json* const value = dataset::FindKey(row, "prompt");
  if (value == nullptr) return dataset::MissingKey(row, "prompt", "a judge reads it");
  if (value->is_array() && !value->empty() && value->front().is_object()) {
    return ordered_json(*value);
  }
  if (!value->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt: expected text or messages, which a judge reads, found ", value->type_name()));
  }
  ordered_json content = ordered_json::array();
  for (size_t i = 0; listed.is_array() && i < listed.size(); ++i) {
    content.push_back({{"type", "image"}});
  }
  content.push_back({{"type", "text"}, {"text", value->get<std::string>()}});
  return ordered_json::array({{{"role", "user"}, {"content", std::move(content)}}});
}

absl::StatusOr<std::string> UrlOf(const RowImages& images, const std::string& source) {
  ASSIGN_OR_RETURN(const images::ImageBytes file, images.ReadSource(source));
  return images::DataUrlOf(file.bytes, file.place);
}

// How rows become what a judge judges.
struct RowReader {
  const reward::JudgeOptions& options;
  const RowImages& files;  // outlives what is read

  absl::Status ReadPrompt(const nlohmann::json& row, reward::JudgedText& text) const {
    const nlohmann::json* const found = dataset::FindKey(row, "images");
    const ordered_json listed = found == nullptr ? ordered_json() : ordered_json(*found);
    driver::Prompt prompt;
    ASSIGN_OR_RETURN(prompt.chat.emplace().messages, MessagesOf(row, listed));
    ASSIGN_OR_RETURN(
        const std::vector<images::ChatImage> shown,
        images::FindChatImages(prompt.chat->messages, listed.is_null() ? nullptr : &listed,
                               /*placeholder=*/""));
    if (!shown.empty() && !options.images) {
      return absl::FailedPreconditionError(
          absl::StrCat(shown.front().place, ": an image, which the judge is not shown; set ",
                       options.images_key, "=true for a judge that sees pictures"));
    }
    prompt.images.resize(shown.size());
    driver::PicturedText read = driver::PromptTextAndImages(prompt);
    text.prompt = std::move(read.text);
    for (size_t i = 0; i < shown.size(); ++i) {
      text.prompt_images.push_back(
          {.begin = static_cast<size_t>(read.images[i].begin),
           .end = static_cast<size_t>(read.images[i].end),
           .url = [this, source = shown[i].source] { return UrlOf(files, source); }});
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<reward::JudgedText> TextOfRow(const RowReader& reader, const io::JsonFields& row) {
  const bool needs_answer = reader.options.text.needs_answer();
  reward::JudgedText text;
  RETURN_IF_ERROR(reader.ReadPrompt(row.json(), text));
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

}  // namespace

absl::Status JudgeRows(const RunOptions& options, const std::string& input,
                       const ImageFetching& fetching) {
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, ResolveConfig(options, {.model = false}));
  const driver::RewardPart part = driver::RewardParts(config.reward()).front();
  absl::StatusOr<reward::JudgeOptions> judge_options =
      reward::MakeJudgeOptions(part.judge, part.key, absl::Seconds(config.reward().timeout_s()));
  if (!judge_options.ok()) return Misuse(judge_options.status());
  const RowImages images(input, fetching);
  const RowReader reader{*judge_options, images};
  reward::Judge judge(*judge_options);
  RETURN_IF_ERROR(judge.Check(driver::kRewardServiceWait, nullptr));
  RewardLines lines;
  std::vector<reward::JudgedText> texts;
  const auto judge_all = [&] {
    for (const absl::StatusOr<double>& reward : judge.Score(texts)) lines.Print(reward);
    lines.Flush();
    texts.clear();
  };
  RETURN_IF_ERROR(io::ForEachJsonLine(input, [&](const io::JsonFields& row) -> absl::Status {
    ASSIGN_OR_RETURN(texts.emplace_back(), TextOfRow(reader, row));
    if (texts.size() == kRewardRowsAtOnce) judge_all();
    return absl::OkStatus();
  }));
  judge_all();
  return lines.Failures();
}

}  // namespace tandem::commands
