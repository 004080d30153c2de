#include "tools/tandem/dataset/row_form.h"

#include "absl/strings/str_cat.h"
#include "tools/tandem/dataset/chat_messages.h"
#include "tools/tandem/dataset/row_keys.h"

namespace tandem::dataset {
namespace {

using nlohmann::json;

constexpr char kPrompt[] = "prompt";
constexpr char kAnswer[] = "answer";
constexpr char kMessages[] = "messages";
constexpr char kCompletion[] = "completion";
constexpr char kGroundTruth[] = "reward_model.ground_truth";
// OpenAI's preference fine-tuning.
constexpr char kInputMessages[] = "input.messages";
constexpr char kPreferred[] = "preferred_output";
constexpr char kNotPreferred[] = "non_preferred_output";

bool IsMessagesAt(const json& row, const std::string& key) {
  const json* value = FindKey(row, key);
  return value != nullptr && IsMessageList(*value);
}

bool EndsWithAssistant(const json& row, const std::string& key) {
  const json* value = key.empty() ? nullptr : FindKey(row, key);
  if (value == nullptr || !IsMessageList(*value)) return false;
  const json& last = value->back();
  return last.is_object() && last.contains("role") && last["role"] == "assistant";
}

std::string FirstKey(const json& row, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (FindKey(row, key) != nullptr) return key;
  }
  return "";
}

void FindPrompt(const json& row, const config::v1::DataConfig& config, RowForm& form) {
  if (FindKey(row, config.prompt_key()) != nullptr) {
    form.prompt_key = config.prompt_key();
  } else if (config.prompt_key() == kPrompt) {
    form.prompt_key = FirstKey(row, {kMessages, kInputMessages});
  }
}

void FindAnswer(const json& row, const config::v1::DataConfig& config, RowForm& form) {
  if (FindKey(row, config.answer_key()) != nullptr) {
    form.answer_key = form.completion_key = config.answer_key();
  } else if (config.answer_key() == kAnswer) {
    form.completion_key = FirstKey(row, {kCompletion});
    form.answer_key = FirstKey(row, {kGroundTruth, kCompletion});
  }
  form.is_conversation = EndsWithAssistant(row, form.prompt_key) &&
                         (form.completion_key.empty() || !IsMessagesAt(row, form.completion_key));
}

void FindPair(const json& row, const config::v1::DataConfig& config, RowForm& form) {
  form.chosen_key = FirstKey(row, {config.chosen_key().c_str()});
  form.rejected_key = FirstKey(row, {config.rejected_key().c_str()});
  if (form.chosen_key.empty() && config.chosen_key() == "chosen") {
    form.chosen_key = FirstKey(row, {kPreferred});
  }
  if (form.rejected_key.empty() && config.rejected_key() == "rejected") {
    form.rejected_key = FirstKey(row, {kNotPreferred});
  }
}

std::string NameOf(const json& row, const RowForm& form) {
  const bool has_messages = IsMessagesAt(row, form.prompt_key);
  if (form.chosen_key == kPreferred) {
    return "OpenAI preferences: input.messages, preferred_output, non_preferred_output";
  }
  if (!form.chosen_key.empty() && !form.rejected_key.empty()) {
    const bool is_chat = IsMessagesAt(row, form.chosen_key);
    return absl::StrCat(is_chat ? "TRL conversational preferences: " : "preferences: ",
                        form.prompt_key.empty() ? "" : absl::StrCat(form.prompt_key, ", "),
                        form.chosen_key, ", ", form.rejected_key);
  }
  if (form.answer_key == kGroundTruth) {
    return absl::StrCat("verl: ", form.prompt_key, ", ", form.answer_key);
  }
  if (form.completion_key == kCompletion) {
    return absl::StrCat("TRL ", IsMessagesAt(row, kCompletion) ? "conversational " : "",
                        "prompt and completion");
  }
  if (form.is_conversation) return absl::StrCat("conversations (TRL, OpenAI): ", form.prompt_key);
  const json* prompt = form.prompt_key.empty() ? nullptr : FindKey(row, form.prompt_key);
  const char* kind = has_messages                              ? " (messages)"
                     : prompt != nullptr && prompt->is_array() ? " (token ids)"
                                                               : "";
  return absl::StrCat(
      form.prompt_key, kind,
      form.answer_key.empty() ? ", no answer" : absl::StrCat(", ", form.answer_key));
}

}  // namespace

RowForm RecogniseForm(const json& row, const config::v1::DataConfig& config) {
  RowForm form;
  FindPrompt(row, config, form);
  FindAnswer(row, config, form);
  FindPair(row, config, form);
  form.tools_key = FirstKey(row, {"tools", "input.tools"});
  form.name = NameOf(row, form);
  return form;
}

}  // namespace tandem::dataset
