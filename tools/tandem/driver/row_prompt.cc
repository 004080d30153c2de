#include "tools/tandem/driver/row_prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "tools/tandem/dataset/chat_messages.h"
#include "tools/tandem/dataset/chat_options.h"
#include "tools/tandem/dataset/conversation.h"
#include "tools/tandem/dataset/row_keys.h"

namespace tandem::driver {
namespace {

using dataset::FindKey;
using dataset::MissingKey;
using dataset::TextOf;
using dataset::TextRun;
using nlohmann::json;
using nlohmann::ordered_json;

bool IsIdList(const json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const json& id : value) {
    if (!id.is_number_unsigned()) return false;
  }
  return true;
}

bool IsAssistant(const ordered_json& message) { return message["role"] == "assistant"; }

// Appends ids to a sequence, to its last run if that is of the same kind.
void Append(std::vector<uint32_t> ids, bool is_trained, GivenSequence& sequence,
            size_t num_images = 0) {
  if (ids.empty()) return;
  if (sequence.empty() || sequence.back().is_trained != is_trained) {
    sequence.push_back({std::move(ids), is_trained, num_images});
  } else {
    auto& last = sequence.back().token_ids;
    last.insert(last.end(), ids.begin(), ids.end());
    sequence.back().num_images += num_images;
  }
}

}  // namespace

// The state of one row.
class RowPrompts::Builder {
 public:
  Builder(const RowPrompts& rows, const io::JsonFields& row, const dataset::RowForm& form,
          const std::string& folder)
      : config_(rows.config_),
        needs_(rows.needs_),
        tokenizer_(rows.tokenizer_),
        row_(row.json()),
        source_(row.source()),
        form_(form),
        folder_(folder) {}

  absl::StatusOr<Prompt> Build() {
    prompt_.fields = row_;
    RETURN_IF_ERROR(ReadPrompt());
    RETURN_IF_ERROR(ReadImages());
    RETURN_IF_ERROR(ReadAnswer());
    if (needs_.generation || needs_.given == RowNeeds::Given::kNone || !has_conversation_) {
      RETURN_IF_ERROR(EncodePrompt());
    }
    if (needs_.given_is_optional && !HasGiven()) return std::move(prompt_);
    if (needs_.given == RowNeeds::Given::kCompletion) {
      RETURN_IF_ERROR(GiveCompletion());
    } else if (needs_.given == RowNeeds::Given::kPair) {
      RETURN_IF_ERROR(GivePair());
    }
    if (prompt_.token_ids.empty() && !prompt_.given.empty()) {
      prompt_.token_ids = prompt_.given[0].front().token_ids;
    }
    return std::move(prompt_);
  }

 private:
  // Finds the prompt's value, and its messages if it is rendered by the chat template.
  absl::Status ReadPrompt() {
    RETURN_IF_ERROR(FindWholeConversations());
    if (pair_is_whole_) return absl::OkStatus();
    value_ = form_.prompt_key.empty() ? nullptr : FindKey(row_, form_.prompt_key);
    if (value_ == nullptr) return MissingKey(row_, config_.prompt_key(), "data.prompt_key");
    if (IsIdList(*value_)) return absl::OkStatus();
    const bool is_chat = value_->is_array();
    if (!value_->is_string() && !is_chat) {
      return absl::InvalidArgumentError(
          absl::StrCat(form_.prompt_key,
                       ": expected a string, a list of messages or a list of token ids, found ",
                       value_->type_name()));
    }
    RETURN_IF_ERROR(NeedTokenizer(form_.prompt_key));
    if (!is_chat && !config_.chat_template() && !CompletionIsChat()) return absl::OkStatus();
    RETURN_IF_ERROR(ReadOptions());
    if (is_chat) {
      ASSIGN_OR_RETURN(messages_, MessagesAt(form_.prompt_key));
    } else {
      messages_ = ordered_json::array();
      messages_.push_back(
          {{"role", "user"},
           {"content", absl::StrCat(config_.prompt_prefix(), value_->get<std::string>(),
                                    config_.prompt_suffix())}});
    }
    AddSystemPrompt(messages_);
    has_conversation_ = EndsWithCompletion() || CompletionIsChat();
    return absl::OkStatus();
  }

  // A pair whose completions are whole conversations: both begin with the prompt's messages.
  absl::Status FindWholeConversations() {
    if (needs_.given != RowNeeds::Given::kPair) return absl::OkStatus();
    for (const std::string& key : {form_.chosen_key, form_.rejected_key}) {
      const json* value = key.empty() ? nullptr : FindKey(row_, key);
      if (value == nullptr || !dataset::IsMessageList(*value)) return absl::OkStatus();
      const json& first = value->front();
      if (first.contains("role") && first["role"] == "assistant") return absl::OkStatus();
    }
    RETURN_IF_ERROR(NeedTokenizer(form_.chosen_key));
    RETURN_IF_ERROR(ReadOptions());
    pair_is_whole_ = has_conversation_ = true;
    ASSIGN_OR_RETURN(ordered_json chosen, MessagesAt(form_.chosen_key));
    ASSIGN_OR_RETURN(const ordered_json rejected, MessagesAt(form_.rejected_key));
    messages_ = ordered_json::array();
    for (size_t i = 0; i < std::min(chosen.size(), rejected.size()); ++i) {
      if (chosen[i] != rejected[i]) break;
      messages_.push_back(chosen[i]);
    }
    num_shared_ = messages_.size();
    if (num_shared_ == 0 || num_shared_ == std::min(chosen.size(), rejected.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(form_.chosen_key, ", ", form_.rejected_key,
                       ": expected conversations that begin with the same messages and end with "
                       "different ones"));
    }
    AddSystemPrompt(messages_);
    return absl::OkStatus();
  }

  absl::Status NeedTokenizer(const std::string& key) const {
    if (tokenizer_ != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": text needs a tokenizer, and the model's folder has none"));
  }

  bool HasGiven() const {
    return needs_.given == RowNeeds::Given::kPair
               ? !form_.chosen_key.empty() && !form_.rejected_key.empty()
               : form_.is_conversation || !form_.completion_key.empty();
  }

  // The last message is what follows the prompt.
  bool EndsWithCompletion() const {
    return form_.is_conversation && needs_.given != RowNeeds::Given::kPair;
  }

  bool CompletionIsChat() const {
    const auto is_chat = [this](const std::string& key) {
      const json* value = key.empty() ? nullptr : FindKey(row_, key);
      return value != nullptr && dataset::IsMessageList(*value);
    };
    return (needs_.given == RowNeeds::Given::kCompletion && is_chat(form_.completion_key)) ||
           (needs_.given == RowNeeds::Given::kPair && is_chat(form_.chosen_key));
  }

  void AddSystemPrompt(ordered_json& messages) const {
    const bool has_system = !messages.empty() && messages[0]["role"] == "system";
    if (config_.system_prompt().empty() || has_system) return;
    messages.insert(messages.begin(),
                    ordered_json{{"role", "system"}, {"content", config_.system_prompt()}});
  }

  // The row with its keys in the order of the file, which templates keep in what they write.
  absl::StatusOr<const ordered_json*> Ordered() {
    if (ordered_.is_null()) {
      ASSIGN_OR_RETURN(ordered_, io::ParseOrderedJson(source_));
    }
    return &ordered_;
  }

  absl::StatusOr<ordered_json> MessagesAt(const std::string& key) {
    ASSIGN_OR_RETURN(const ordered_json* row, Ordered());
    return dataset::ReadMessages(
        *FindKey(*row, key), key,
        needs_.images == nullptr ? dataset::ImageParts::kRefused : dataset::ImageParts::kKept);
  }

  // The row's list of images; null without one.
  absl::StatusOr<const ordered_json*> ListedImages() {
    ASSIGN_OR_RETURN(const ordered_json* row, Ordered());
    const ordered_json* const listed = FindKey(*row, config_.image_key());
    return listed == nullptr || listed->is_null() ? nullptr : listed;
  }

  // Reads the images of the prompt; a conversation's are those of all its messages.
  absl::Status ReadImages() {
    if (needs_.images == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ordered_json* const listed, ListedImages());
    absl::StatusOr<ImageReader::Images> read;
    if (value_ != nullptr && IsIdList(*value_)) {
      const ordered_json none = ordered_json::array();
      read = needs_.images->ReadFor(value_->get<std::vector<uint32_t>>(),
                                    listed == nullptr ? none : *listed, folder_);
    } else if (messages_.is_array()) {
      read = needs_.images->Read(messages_, listed, folder_);
    } else {
      ordered_json text = ordered_json::array();
      text.push_back({{"role", "user"}, {"content", value_->get<std::string>()}});
      read = needs_.images->Read(text, listed, folder_);
    }
    if (!read.ok()) return ImageError(read.status(), listed);
    images_ = *std::move(read);
    prompt_.images = images_.files();
    if (!prompt_.images.empty()) prompt_.image_placeholder = needs_.images->placeholder();
    return absl::OkStatus();
  }

  // Messages say "images" for the row's list and "messages" for the prompt.
  absl::Status ImageError(const absl::Status& status, const ordered_json* listed) const {
    const bool renamed = listed != nullptr && config_.image_key() != "images";
    return renamed
               ? absl::Status(status.code(), absl::StrCat("data.image_key ", config_.image_key(),
                                                          ": ", status.message()))
               : status;
  }

  absl::Status CheckText(const ordered_json& message) const {
    if (message["content"].is_string()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the completion has an image; a completion is text, and its images belong to the prompt");
  }

  absl::Status ReadOptions() {
    ASSIGN_OR_RETURN(const ordered_json* row, Ordered());
    ASSIGN_OR_RETURN(
        options_, dataset::ReadChatOptions(*row, form_.tools_key, config_.chat_template_kwargs()));
    if (options_.tools.is_null()) options_.tools = needs_.tools;
    return absl::OkStatus();
  }

  absl::Status ReadAnswer() {
    const json* value = form_.answer_key.empty() ? nullptr : FindKey(row_, form_.answer_key);
    if (value == nullptr && EndsWithCompletion()) {
      RETURN_IF_ERROR(CheckText(messages_.back()));
      prompt_.answer = messages_.back()["content"].get<std::string>();
      return CheckAnswer();
    }
    if (value == nullptr) {
      return needs_.answer ? MissingKey(row_, config_.answer_key(), "data.answer_key")
                           : absl::OkStatus();
    }
    absl::StatusOr<std::string> text = AnswerText(*value);
    if (text.ok()) {
      prompt_.answer = *std::move(text);
    } else if (needs_.answer) {
      return text.status();
    }
    return CheckAnswer();
  }

  absl::Status CheckAnswer() const {
    if (!needs_.answer || needs_.check_answer == nullptr) return absl::OkStatus();
    return needs_.check_answer(prompt_.answer);
  }

  // A completion in messages answers with its last one.
  absl::StatusOr<std::string> AnswerText(const json& value) {
    if (!dataset::IsMessageList(value)) return TextOf(value, form_.answer_key);
    ASSIGN_OR_RETURN(const ordered_json messages, MessagesAt(form_.answer_key));
    RETURN_IF_ERROR(CheckText(messages.back()));
    return messages.back()["content"].get<std::string>();
  }

  absl::Status EncodePrompt() {
    if (value_ != nullptr && IsIdList(*value_)) {
      prompt_.token_ids = value_->get<std::vector<uint32_t>>();
      return absl::OkStatus();
    }
    std::vector<int32_t> ids;
    if (messages_.is_array()) {
      ordered_json context = messages_;
      if (EndsWithCompletion()) context.erase(context.size() - 1);
      tokenizer::ChatOptions options = options_;
      options.add_generation_prompt = true;
      ASSIGN_OR_RETURN(prompt_.text, tokenizer_->RenderChat(context, options));
      ASSIGN_OR_RETURN(ids, tokenizer_->Encode(images_.TextForTokens(prompt_.text),
                                               /*add_special_tokens=*/false));
      if (needs_.keeps_chat) {
        prompt_.chat = ChatPrompt{std::move(context), options_.tools, options_.extra};
      }
    } else {
      prompt_.text = absl::StrCat(config_.prompt_prefix(), value_->get<std::string>(),
                                  config_.prompt_suffix());
      ASSIGN_OR_RETURN(ids, tokenizer_->Encode(images_.TextForTokens(prompt_.text),
                                               /*add_special_tokens=*/true));
    }
    if (needs_.images != nullptr) {
      ASSIGN_OR_RETURN(ids, images_.Expand(ids));
    }
    prompt_.token_ids.assign(ids.begin(), ids.end());
    if (prompt_.token_ids.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(form_.prompt_key, ": the prompt has no tokens"));
    }
    return absl::OkStatus();
  }

  absl::Status GiveCompletion() {
    if (form_.is_conversation) return GiveTurns(messages_, /*first=*/0);
    const json* value =
        form_.completion_key.empty() ? nullptr : FindKey(row_, form_.completion_key);
    if (value == nullptr) return MissingKey(row_, config_.answer_key(), "data.answer_key");
    return Give(form_.completion_key, *value);
  }

  absl::Status GivePair() {
    const std::pair<std::string, std::string> keys[] = {
        {form_.chosen_key, config_.chosen_key()}, {form_.rejected_key, config_.rejected_key()}};
    for (const auto& [key, configured] : keys) {
      if (key.empty()) {
        return MissingKey(
            row_, configured,
            configured == config_.chosen_key() ? "data.chosen_key" : "data.rejected_key");
      }
      const size_t before = prompt_.given.size();
      RETURN_IF_ERROR(Give(key, *FindKey(row_, key)));
      if (prompt_.given.size() != before + 1) {
        return absl::InvalidArgumentError(
            absl::StrCat(key,
                         ": the chat template rewrites earlier turns, so these turns are no single "
                         "sequence; set "
                         "data.trained_turns=last_assistant"));
      }
    }
    return absl::OkStatus();
  }

  // Gives the completion at `key` after the prompt.
  absl::Status Give(const std::string& key, const json& value) {
    if (!dataset::IsMessageList(value)) {
      ASSIGN_OR_RETURN(const std::string text, TextOf(value, key));
      return GiveText(text);
    }
    if (!messages_.is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(
          key, ": a completion in messages needs a prompt of text or messages, found token ids"));
    }
    ASSIGN_OR_RETURN(const ordered_json completion, MessagesAt(key));
    ordered_json all = messages_;
    for (size_t i = pair_is_whole_ ? num_shared_ : 0; i < completion.size(); ++i) {
      all.push_back(completion[i]);
    }
    return GiveTurns(all, messages_.size());
  }

  // Prompt and completion are tokenised apart, as they are at generation: there the completion
  // begins after the prompt's last token.
  absl::Status GiveText(const std::string& text) {
    if (tokenizer_ == nullptr) return NeedTokenizer(form_.completion_key);
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     tokenizer_->Encode(text, /*add_special_tokens=*/false));
    std::vector<uint32_t> completion(ids.begin(), ids.end());
    completion.push_back(needs_.end_ids.front());
    GivenSequence& sequence = prompt_.given.emplace_back();
    Append(prompt_.token_ids, false, sequence, prompt_.images.size());
    Append(std::move(completion), true, sequence);
    return absl::OkStatus();
  }

  // Gives the assistant's turns from message `first` on.
  absl::Status GiveTurns(const ordered_json& messages, size_t first) {
    ASSIGN_OR_RETURN(const std::vector<bool> trained, TrainedTurns(messages, first));
    ASSIGN_OR_RETURN(const auto sequences,
                     dataset::RenderConversation(messages, trained, options_, *tokenizer_));
    size_t num_shown = 0;
    for (const std::vector<TextRun>& runs : sequences) {
      GivenSequence& sequence = prompt_.given.emplace_back();
      num_shown = 0;
      for (size_t i = 0; i < runs.size(); ++i) {
        RETURN_IF_ERROR(AppendRun(runs[i], /*is_last=*/i + 1 == runs.size(), sequence, num_shown));
      }
    }
    // Images after the last trained turn are in no sequence.
    if (trained.back() && num_shown < prompt_.images.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the chat template wrote a placeholder for ", num_shown, " of the row's ",
                       prompt_.images.size(), " images; use a template that shows images"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<bool>> TrainedTurns(const ordered_json& messages, size_t first) const {
    std::vector<bool> trained(messages.size());
    for (size_t i = first; i < messages.size(); ++i) {
      const ordered_json weight = messages[i].value("weight", ordered_json(1));
      if (weight != 0 && weight != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("message ", i, ": weight: expected 0 or 1, ", "found ", weight.dump()));
      }
      trained[i] = IsAssistant(messages[i]) && weight == 1;
      if (trained[i] && config_.trained_turns() == config::v1::TRAINED_TURNS_LAST_ASSISTANT) {
        std::fill(trained.begin(), trained.begin() + static_cast<int64_t>(i), false);
      }
    }
    return trained;
  }

  // A trained turn ends with the token that ends a completion: what the template adds after it is
  // never sampled.
  // `num_images`: of the sequence, so far.
  absl::Status AppendRun(const TextRun& run, bool is_last, GivenSequence& sequence,
                         size_t& num_images) {
    ASSIGN_OR_RETURN(std::vector<int32_t> encoded,
                     tokenizer_->Encode(images_.TextForTokens(run.text),
                                        /*add_special_tokens=*/false));
    const size_t num_before = num_images;
    if (needs_.images != nullptr) {
      ASSIGN_OR_RETURN(encoded, images_.ExpandPart(encoded, &num_images));
    }
    std::vector<uint32_t> ids(encoded.begin(), encoded.end());
    if (!run.is_trained) {
      Append(std::move(ids), false, sequence, num_images - num_before);
      return absl::OkStatus();
    }
    if (num_images > num_before) {
      return absl::InvalidArgumentError(
          "a turn that is trained on has an image; images belong to turns that are not");
    }
    const auto is_end = [this](uint32_t id) {
      return std::find(needs_.end_ids.begin(), needs_.end_ids.end(), id) != needs_.end_ids.end();
    };
    const auto end = std::find_if(ids.rbegin(), ids.rend(), is_end).base();
    std::vector<uint32_t> rest;
    if (end != ids.begin()) {
      rest.assign(end, ids.end());
      ids.erase(end, ids.end());
    } else if (is_last) {
      ids.push_back(needs_.end_ids.front());
    }
    Append(std::move(ids), true, sequence);
    if (!is_last) Append(std::move(rest), false, sequence);
    return absl::OkStatus();
  }

  const config::v1::DataConfig& config_;
  const RowNeeds& needs_;
  const tokenizer::Tokenizer* const tokenizer_;
  const json& row_;
  const absl::string_view source_;
  const dataset::RowForm& form_;
  const std::string& folder_;

  Prompt prompt_;
  ImageReader::Images images_;
  const json* value_ = nullptr;  // the prompt's
  ordered_json ordered_;         // see Ordered()
  ordered_json messages_;        // the prompt's; null: it is text or token ids
  tokenizer::ChatOptions options_;
  bool has_conversation_ = false;  // what is given is rendered with its prompt
  bool pair_is_whole_ = false;     // see FindWholeConversations()
  size_t num_shared_ = 0;          // messages that such a pair shares
};

absl::StatusOr<Prompt> RowPrompts::Make(const io::JsonFields& row, const dataset::RowForm& form,
                                        const std::string& folder) const {
  return Builder(*this, row, form, folder).Build();
}

}  // namespace tandem::driver
