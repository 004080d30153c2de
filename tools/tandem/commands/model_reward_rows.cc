#include "tools/tandem/commands/model_reward_rows.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/io/file_util.h"
#include "common/io/jsonl.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/reward_lines.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/dataset/chat_messages.h"
#include "tools/tandem/dataset/row_keys.h"
#include "tools/tandem/driver/model_reward.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/rewarder.h"

namespace tandem::commands {
namespace {

using Ids = std::vector<uint32_t>;

constexpr char kServedName[] = "reward-model-0";

absl::StatusOr<Ids> GivenIds(const io::JsonFields& row) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> given, row.IntList("ids"));
  if (given.empty()) return row.Error("ids", "expected token ids, found none");
  Ids ids;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0 || given[i] > UINT32_MAX) {
      return row.Error("ids", absl::StrCat("[", i, "]: ", given[i], " is not a token id"));
    }
    ids.push_back(static_cast<uint32_t>(given[i]));
  }
  return ids;
}

// Prompt and completion as the reward model's tokenizer and chat template write them.
absl::StatusOr<Ids> RenderedIds(const io::JsonFields& row, const driver::ModelReward& model) {
  const nlohmann::json* const value = dataset::FindKey(row.json(), "prompt");
  if (value == nullptr) {
    return dataset::MissingKey(row.json(), "prompt", "a reward model scores prompt and completion");
  }
  if (row.Has("images")) return row.Error("images", "a reward model sees no images");
  driver::Prompt prompt;
  if (dataset::IsMessageList(*value)) {
    // With its keys in order, which templates keep.
    ASSIGN_OR_RETURN(const nlohmann::ordered_json ordered, io::ParseOrderedJson(row.source()));
    ASSIGN_OR_RETURN(prompt.chat.emplace().messages,
                     dataset::ReadMessages(*dataset::FindKey(ordered, "prompt"), "prompt"));
  } else if (value->is_string()) {
    prompt.text = value->get<std::string>();
  } else {
    return row.Error("prompt", absl::StrCat("expected text or messages, found ", value->type_name(),
                                            "; whole sequences of tokens are "
                                            "{\"ids\": [...]}"));
  }
  driver::Completion completion;
  ASSIGN_OR_RETURN(completion.text, row.String("completion"));
  return model.Render(prompt, completion);
}

absl::Status ScoreRows(driver::ModelReward& model, const std::string& input) {
  RewardLines lines;
  std::vector<Ids> sequences;
  const auto score = [&] {
    for (const driver::Score& score : model.ScoreIds(std::exchange(sequences, {}))) {
      lines.Print(score.reward.has_value() ? absl::StatusOr<double>(*score.reward) : score.failure);
    }
    lines.Flush();
  };
  RETURN_IF_ERROR(io::ForEachJsonLine(input, [&](const io::JsonFields& row) -> absl::Status {
    ASSIGN_OR_RETURN(sequences.emplace_back(),
                     row.Has("ids") ? GivenIds(row) : RenderedIds(row, model));
    if (sequences.size() == kRewardRowsAtOnce) score();
    return absl::OkStatus();
  }));
  score();
  return lines.Failures();
}

}  // namespace

absl::Status ModelRewardRows(const RunOptions& options, const std::string& input) {
  Session session;
  const ScratchFolder scratch(&session);
  const auto interrupted = [&session] { return session.interrupted(); };
  RunOptions run = options;
  run.overrides.push_back(absl::StrCat("run_dir=", scratch.path()));
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, ResolveConfig(run, {.model = false}));
  const driver::RewardPart part = driver::RewardParts(config.reward()).front();
  const std::string key = part.key + ".model";
  absl::StatusOr<std::unique_ptr<driver::ModelReward>> made = driver::ModelReward::CreateForTexts(
      part.model, absl::Seconds(config.reward().timeout_s()), interrupted);
  RETURN_IF_ERROR(io::AtPlace(key, made.status()));
  driver::ModelReward& model = **made;
  if (model.path_to_serve().empty()) {
    RETURN_IF_ERROR(model.Check(driver::kRewardServiceWait, interrupted)) << key;
  } else {
    SessionOptions session_options;
    session_options.local = true;
    session_options.needs_trainer = false;
    session_options.needs_rollouts = false;
    session_options.served_folders = {{kServedName, key, model.path_to_serve()}};
    RETURN_IF_ERROR(session.Explain(session.Open(config, session_options)));
    RETURN_IF_ERROR(session.Explain(model.Connect(
        absl::StrCat("the reward model ", model.path_to_serve()),
        [&session] { return session.address_of_served()(kServedName); }, driver::kRewardServiceWait,
        interrupted)));
  }
  return session.Explain(ScoreRows(model, input));
}

}  // namespace tandem::commands
