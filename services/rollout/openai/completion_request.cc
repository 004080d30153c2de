#include "services/rollout/openai/completion_request.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/images/image_digest.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/engine/limits.h"
#include "services/rollout/engine/prompt_length.h"
#include "services/rollout/openai/chat_messages.h"
#include "services/rollout/openai/sampling_fields.h"
#include "services/rollout/openai/session_prompt.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

// Choices of one request at most: each costs memory before the engine is asked.
constexpr size_t kMaxChoices = 16384;
// Text that is tokenized between two looks at the client.
constexpr size_t kBytesBetweenChecks = size_t{256} << 10;

absl::Status NeedsTokenizer(const std::string& field) {
  return rpc::InvalidField(field,
                           "text needs a tokenizer, and the model's folder has no tokenizer.json; "
                           "send token ids to /v1/completions");
}

// Turns the prompts of one request into tokens.
class PromptReader {
 public:
  PromptReader(const CompletionRequest& request, const tokenizer::Tokenizer* tokenizer,
               const ParseOptions& options)
      : request_(request), tokenizer_(tokenizer), options_(options) {}

  absl::StatusOr<CompletionPrompt> Text(const std::string& text, const std::string& field,
                                        bool add_special_tokens) {
    if (tokenizer_ == nullptr) return NeedsTokenizer(field);
    RETURN_IF_ERROR(options_.text.CheckText(text, field));
    RETURN_IF_ERROR(LookAtClient(text.size()));
    auto ids = tokenizer_->Encode(text, add_special_tokens);
    if (!ids.ok()) return rpc::InvalidField(field, ids.status().message());
    RETURN_IF_ERROR(CheckLength(ids->size()));
    return CompletionPrompt{*std::move(ids), text, /*is_text=*/true};
  }

  // The text of a chat with images, each of whose placeholders becomes as many as the image has rows.
  absl::StatusOr<CompletionPrompt> TextWithImages(const std::string& text, const ReadImages& images,
                                                  const std::string& field) {
    return AfterWithImages(PastTurn(), text, images, field);
  }

  // `text`, which may be of a session's earlier call and what follows it.
  absl::StatusOr<CompletionPrompt> TextInSession(const std::string& text, const std::string& field,
                                                 bool add_special_tokens) {
    std::shared_ptr<const PastTurn> past;
    if (options_.session != nullptr) past = options_.session->FindText(text);
    if (past == nullptr) return Text(text, field, add_special_tokens);
    ASSIGN_OR_RETURN(CompletionPrompt out, After(*past, text.substr(past->text.size()), field));
    out.text = text;
    return out;
  }

  // The tokens of an earlier call, and those of the text that follows.
  absl::StatusOr<CompletionPrompt> After(const PastTurn& past, const std::string& new_text,
                                         const std::string& field) {
    ASSIGN_OR_RETURN(CompletionPrompt out, Text(new_text, field, /*add_special_tokens=*/false));
    out.ids.insert(out.ids.begin(), past.token_ids.begin(), past.token_ids.end());
    RETURN_IF_ERROR(CheckLength(out.ids.size()));
    return out;
  }

  // The same for a chat whose images begin with those of the earlier call.
  absl::StatusOr<CompletionPrompt> AfterWithImages(const PastTurn& past,
                                                   const std::string& new_text,
                                                   const ReadImages& images,
                                                   const std::string& field) {
    ASSIGN_OR_RETURN(CompletionPrompt out,
                     Text(images::TextForTokens(images.placeholders, new_text), field,
                          /*add_special_tokens=*/false));
    out.text = new_text;
    ASSIGN_OR_RETURN(out.ids, images::ExpandPlaceholders(
                                  out.ids, images.placeholders,
                                  absl::MakeConstSpan(images.found).subspan(past.num_images),
                                  absl::MakeConstSpan(images.grids).subspan(past.num_images)));
    out.ids.insert(out.ids.begin(), past.token_ids.begin(), past.token_ids.end());
    RETURN_IF_ERROR(CheckLength(out.ids.size()));
    out.images = images.files;
    return out;
  }

  absl::StatusOr<CompletionPrompt> Ids(const ordered_json& list, const std::string& field) {
    CompletionPrompt prompt;
    RETURN_IF_ERROR(ReadIdList(list, field, prompt.ids));
    RETURN_IF_ERROR(CheckLength(prompt.ids.size()));
    RETURN_IF_ERROR(LookAtClient(prompt.ids.size()));
    if (tokenizer_ != nullptr) {
      // A negative id is the engine's to refuse.
      prompt.text = tokenizer_->Decode(prompt.ids, /*skip_special_tokens=*/true).value_or("");
    }
    return prompt;
  }

 private:
  // The engine checks the prompts that it is given; those that are only echoed end here.
  absl::Status CheckLength(size_t num_tokens) const {
    return CheckPromptLength(static_cast<int64_t>(num_tokens), options_.text.max_model_len,
                             request_.generates);
  }

  absl::Status LookAtClient(size_t bytes) {
    bytes_since_look_ += bytes;
    if (bytes_since_look_ < kBytesBetweenChecks || options_.check == nullptr) {
      return absl::OkStatus();
    }
    bytes_since_look_ = 0;
    return options_.check();
  }

  const CompletionRequest& request_;
  const tokenizer::Tokenizer* const tokenizer_;
  const ParseOptions& options_;
  size_t bytes_since_look_ = 0;
};

// A string, a list of strings, token ids, or a list of lists of them.
absl::Status ReadPrompts(RequestFields& fields, PromptReader& reader, CompletionRequest& request) {
  bool add_special_tokens = true;
  RETURN_IF_ERROR(fields.Read("add_special_tokens", add_special_tokens));
  const ordered_json* prompt = fields.Find("prompt");
  const char kExpected[] = "a string, token ids, or a list of either";
  if (prompt == nullptr) return fields.Error("prompt", kExpected);
  const auto add = [&](absl::StatusOr<CompletionPrompt> one) {
    if (one.ok()) request.prompts.push_back(*std::move(one));
    return one.status();
  };
  const bool is_one = prompt->is_string() ||
                      (prompt->is_array() && !prompt->empty() && prompt->front().is_number());
  RETURN_IF_ERROR(CheckNumChoices(request, is_one ? 1 : prompt->size()));
  if (prompt->is_string()) {
    return add(reader.TextInSession(prompt->get<std::string>(), "prompt", add_special_tokens));
  }
  if (!prompt->is_array() || prompt->empty()) return fields.Error("prompt", kExpected);
  if (is_one) return add(reader.Ids(*prompt, "prompt"));
  for (size_t i = 0; i < prompt->size(); ++i) {
    const ordered_json& item = (*prompt)[i];
    const std::string field = absl::StrCat("prompt[", i, "]");
    if (item.is_string()) {
      RETURN_IF_ERROR(
          add(reader.TextInSession(item.get<std::string>(), field, add_special_tokens)));
    } else if (item.is_array()) {
      RETURN_IF_ERROR(add(reader.Ids(item, field)));
    } else {
      return rpc::InvalidField(
          field, absl::StrCat("expected a string or token ids, found ", DescribeValue(item)));
    }
  }
  return absl::OkStatus();
}

// A chat that repeats a turn of its session: the tokens of that turn, and what is new. Nullopt if it
// repeats none.
absl::StatusOr<std::optional<CompletionPrompt>> ContinueInSession(
    const ordered_json& messages, const ReadImages& images,
    const std::vector<std::string>& image_digests, const tokenizer::ChatOptions& chat,
    const tokenizer::Tokenizer& tokenizer, const Session& session, const std::string& forced,
    PromptReader& reader) {
  ASSIGN_OR_RETURN(const std::optional<ContinuedChat> continued,
                   ContinueChat(session, messages, image_digests, chat, tokenizer));
  if (!continued.has_value()) return std::nullopt;
  const std::string new_text = continued->new_text + forced;
  absl::StatusOr<CompletionPrompt> prompt =
      images.found.empty() ? reader.After(*continued->past, new_text, "messages")
                           : reader.AfterWithImages(*continued->past, new_text, images, "messages");
  RETURN_IF_ERROR(prompt.status());
  prompt->text = continued->whole_text + forced;
  return prompt;
}

absl::StatusOr<CompletionPrompt> ReadChat(const ordered_json& messages,
                                          const tokenizer::ChatOptions& chat,
                                          const tokenizer::Tokenizer& tokenizer,
                                          const ParseOptions& options, PromptReader& reader,
                                          CompletionRequest& request) {
  const std::string& forced = request.tool_calling.forced_text;
  const Session* const session = options.session;
  ASSIGN_OR_RETURN(const ReadImages images, ReadChatImages(messages, options.images, tokenizer));
  const bool has_images = !images.found.empty();
  std::vector<std::string> digests;
  if (session != nullptr) {
    for (const ImageFile& file : images.files) digests.push_back(images::ImageDigest(*file));
    // What is sampled is a message only behind the header of one.
    if (chat.add_generation_prompt) request.messages = messages;
    ASSIGN_OR_RETURN(
        std::optional<CompletionPrompt> prompt,
        ContinueInSession(messages, images, digests, chat, tokenizer, *session, forced, reader));
    if (prompt.has_value()) {
      prompt->image_digests = std::move(digests);
      return *std::move(prompt);
    }
  }
  ASSIGN_OR_RETURN(const std::string text,
                   RenderMessages(messages, chat, tokenizer,
                                  has_images ? ImageParts::kAllowed : ImageParts::kRefused));
  if (!has_images) return reader.Text(text + forced, "messages", /*add_special_tokens=*/false);
  ASSIGN_OR_RETURN(CompletionPrompt prompt,
                   reader.TextWithImages(text + forced, images, "messages"));
  prompt.image_digests = std::move(digests);
  return prompt;
}

absl::Status ReadMessages(RequestFields& fields, const tokenizer::Tokenizer* tokenizer,
                          const ParseOptions& options, PromptReader& reader,
                          CompletionRequest& request) {
  RETURN_IF_ERROR(CheckNumChoices(request, 1));
  const ordered_json* messages = fields.Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.Error("messages", "a list of messages");
  }
  if (tokenizer == nullptr) return NeedsTokenizer("messages");
  tokenizer::ChatOptions chat;
  chat.add_generation_prompt = true;
  RETURN_IF_ERROR(fields.Read("add_generation_prompt", chat.add_generation_prompt));
  ASSIGN_OR_RETURN(request.tool_calling,
                   ReadToolCalling(fields, options.tool_call_format, chat.tools));
  if (const ordered_json* extra = fields.Find("chat_template_kwargs"); extra != nullptr) {
    if (!extra->is_object()) return fields.Error("chat_template_kwargs", "an object");
    chat.extra = *extra;
  }
  ASSIGN_OR_RETURN(CompletionPrompt prompt,
                   ReadChat(*messages, chat, *tokenizer, options, reader, request));
  request.prompts.push_back(std::move(prompt));
  // The marks of calls are special tokens in many models.
  request.generation.show_special_tokens = request.tool_calling.format != nullptr;
  return absl::OkStatus();
}

absl::Status ReadLogprobs(RequestFields& fields, CompletionRequest& request) {
  if (request.chat()) {
    bool wanted = false;
    int32_t top = 0;
    RETURN_IF_ERROR(fields.Read("logprobs", wanted));
    RETURN_IF_ERROR(fields.Read("top_logprobs", top));
    if (top != 0 && !wanted) {
      return rpc::InvalidField("top_logprobs", "needs logprobs true");
    }
    if (wanted) request.num_logprobs = top;
  } else {
    RETURN_IF_ERROR(fields.Read("logprobs", request.num_logprobs));
  }
  return absl::OkStatus();
}

absl::Status ReadGeneration(RequestFields& fields, CompletionRequest& request) {
  GenerationRequest& generation = request.generation;
  RETURN_IF_ERROR(ReadSampling(fields, generation));
  RETURN_IF_ERROR(fields.Read("priority", generation.priority));
  RETURN_IF_ERROR(fields.Read("user", generation.client_id));
  if (request.chat()) {
    RETURN_IF_ERROR(fields.Read("max_completion_tokens", generation.max_tokens));
  } else if (!generation.max_tokens.has_value()) {
    generation.max_tokens = kDefaultMaxTokens;
  }
  if (request.echo && generation.max_tokens == 0) {
    request.generates = false;
    generation.max_tokens.reset();
  }
  return absl::OkStatus();
}

}  // namespace

// Each choice is a sample of the engine, or, of a prompt that is only echoed, of the answer. Checked
// before the first prompt is tokenized.
absl::Status CheckNumChoices(const CompletionRequest& request, size_t num_prompts) {
  if (request.generation.n < 1 || request.generation.n > kMaxSamples) {
    return rpc::InvalidField(
        "n", absl::StrCat("expected 1 to ", kMaxSamples, ", found ", request.generation.n));
  }
  const size_t num_choices = num_prompts * request.generation.n;
  if (num_choices <= kMaxChoices) return absl::OkStatus();
  return rpc::InvalidField(
      "prompt", absl::StrCat("expected at most ", kMaxChoices, " choices (prompts times n), found ",
                             num_choices, "; send several requests"));
}

absl::Status ReadStreaming(RequestFields& fields, CompletionRequest& request) {
  RETURN_IF_ERROR(fields.Read("stream", request.stream));
  const ordered_json* options = fields.Find("stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!options->is_object()) return fields.Error("stream_options", "an object");
  RequestFields inner(*options, "stream_options.");
  RETURN_IF_ERROR(inner.Read("include_usage", request.include_usage));
  inner.Ignore({"include_obfuscation"});
  RETURN_IF_ERROR(inner.ExpectNeutral("continuous_usage_stats", {false}));
  return inner.ExpectAllKnown();
}

void FinishLogprobs(const ParseOptions& options, CompletionRequest& request) {
  request.generation.num_top_logprobs = request.num_logprobs.value_or(0);
  request.processed_logprobs = options.processed_logprobs;
  request.generation.processed_top_logprobs = options.processed_logprobs;
}

absl::StatusOr<CompletionRequest> ParseCompletionRequest(const ordered_json& body, bool chat,
                                                         const tokenizer::Tokenizer* tokenizer,
                                                         const ParseOptions& options) {
  RequestFields fields(body);
  CompletionRequest request;
  request.route = chat ? Route::kChat : Route::kCompletion;
  RETURN_IF_ERROR(fields.Read("model", request.model));
  RETURN_IF_ERROR(ReadStreaming(fields, request));
  RETURN_IF_ERROR(fields.Read("echo", request.echo));
  if (chat && request.echo) return rpc::InvalidField("echo", "is for /v1/completions");
  RETURN_IF_ERROR(fields.Read("return_token_ids", request.return_token_ids));
  RETURN_IF_ERROR(fields.Read("return_tokens_as_token_ids", request.return_tokens_as_token_ids));
  RETURN_IF_ERROR(ReadGeneration(fields, request));
  RETURN_IF_ERROR(ReadLogprobs(fields, request));
  FinishLogprobs(options, request);
  PromptReader reader(request, tokenizer, options);
  RETURN_IF_ERROR(chat ? ReadMessages(fields, tokenizer, options, reader, request)
                       : ReadPrompts(fields, reader, request));
  request.generation.return_text = tokenizer != nullptr;
  request.generation.stream = request.stream;

  // Unsupported parameters that would change the result.
  RETURN_IF_ERROR(fields.ExpectNeutral("best_of", {request.generation.n}));
  RETURN_IF_ERROR(fields.ExpectNeutral("skip_special_tokens", {true}));
  RETURN_IF_ERROR(fields.ExpectNeutral("use_beam_search", {false}));
  RETURN_IF_ERROR(fields.ExpectNeutral("response_format", {{{"type", "text"}}}));
  for (const char* name : {"suffix", "functions", "modalities", "prompt_logprobs"}) {
    RETURN_IF_ERROR(fields.ExpectNeutral(name, {"", ordered_json::array({"text"})}));
  }
  fields.Ignore(
      {"metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id"});
  // Where there are no tools.
  if (!chat) fields.Ignore({"parallel_tool_calls"});
  RETURN_IF_ERROR(fields.ExpectAllKnown());
  return request;
}

}  // namespace tandem::rollout::openai
