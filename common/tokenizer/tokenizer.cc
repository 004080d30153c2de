#include "common/tokenizer/tokenizer.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

// Refuses deeper JSON before copying it: copying recurses.
constexpr int kMaxChatDepth = 100;

bool DeeperThan(const nlohmann::ordered_json& json, int levels) {
  if (!json.is_structured()) return false;
  if (levels == 0) return true;
  for (const auto& element : json) {
    if (DeeperThan(element, levels - 1)) return true;
  }
  return false;
}

// A file of a tokenizer that transformers reads and writes as tokenizer.json.
struct OtherTokenizer {
  const char* file;
  const char* packages;          // that it needs
  const char* save_option = "";  // without it transformers writes tekken.json again
};
constexpr OtherTokenizer kOtherTokenizers[] = {
    {"tekken.json", "transformers mistral-common", ", save_format='hf'"},
    {"tokenizer.model", "transformers sentencepiece protobuf"},
    {"spiece.model", "transformers sentencepiece protobuf"},
    {"sentencepiece.bpe.model", "transformers sentencepiece protobuf"},
    {"vocab.json", "transformers"},
    {"vocab.txt", "transformers"}};

// NotFound: how to make the tokenizer.json that is missing.
absl::Status NoTokenizerJson(const std::string& folder, const absl::Status& missing) {
  for (const OtherTokenizer& other : kOtherTokenizers) {
    std::error_code error;
    if (!std::filesystem::exists(absl::StrCat(folder, "/", other.file), error)) continue;
    return absl::NotFoundError(absl::StrCat(
        missing.message(), "; found ", other.file,
        ", which is not read; convert it: ", "pip install -U ", other.packages,
        " && python -c \"from transformers import AutoTokenizer as T; T.from_pretrained('", folder,
        "').save_pretrained('", folder, "'", other.save_option, ")\""));
  }
  return missing;
}

}  // namespace

Tokenizer::~Tokenizer() = default;

absl::Status Tokenizer::ReadTokenizerJson(const JsonNode& root) {
  ASSIGN_OR_RETURN(const JsonNode model, root.Field("model"));
  ASSIGN_OR_RETURN(model_, ReadModel(model));
  ASSIGN_OR_RETURN(const std::optional<JsonNode> normalizer, root.Find("normalizer"));
  if (normalizer.has_value()) {
    ASSIGN_OR_RETURN(normalizer_, ReadNormalizer(*normalizer));
  }
  ASSIGN_OR_RETURN(const std::optional<JsonNode> pre_tokenizer, root.Find("pre_tokenizer"));
  if (pre_tokenizer.has_value()) {
    ASSIGN_OR_RETURN(pre_tokenizer_, ReadPreTokenizer(*pre_tokenizer));
  }
  ASSIGN_OR_RETURN(const std::optional<JsonNode> post_processor, root.Find("post_processor"));
  if (post_processor.has_value()) {
    ASSIGN_OR_RETURN(post_processor_, PostProcessor::Read(*post_processor));
  }
  ASSIGN_OR_RETURN(const std::optional<JsonNode> decoder, root.Find("decoder"));
  if (decoder.has_value()) {
    ASSIGN_OR_RETURN(decoder_, Decoder::Read(*decoder));
  } else {
    decoder_ = Decoder::Joining();
  }
  ASSIGN_OR_RETURN(const std::optional<JsonNode> added, root.Find("added_tokens"));
  if (added.has_value()) {
    ASSIGN_OR_RETURN(added_tokens_,
                     AddedTokens::Read(*added, model_->vocabulary(), normalizer_.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& model_folder) {
  const std::string path = absl::StrCat(model_folder, "/tokenizer.json");
  const absl::StatusOr<nlohmann::json> json = ReadJsonFile(path);
  if (absl::IsNotFound(json.status())) return NoTokenizerJson(model_folder, json.status());
  RETURN_IF_ERROR(json.status());
  auto tokenizer = std::unique_ptr<Tokenizer>(new Tokenizer);
  RETURN_IF_ERROR(tokenizer->ReadTokenizerJson(JsonNode(*json, path)));
  ASSIGN_OR_RETURN(tokenizer->config_, ReadTokenizerConfig(model_folder));
  for (const auto& [name, source] : tokenizer->config_.chat_templates) {
    tokenizer->templates_.emplace(name, ChatTemplate{tokenizer->config_.template_places[name],
                                                     jinja::Template::Parse(source)});
  }
  return tokenizer;
}

absl::Status Tokenizer::EncodePlain(std::string text, bool starts_input,
                                    std::vector<int32_t>* ids) const {
  if (text.empty()) return absl::OkStatus();
  Pieces pieces;
  pieces.pieces.push_back({0, text.size()});
  pieces.max_bytes = MaxBytesFrom(text.size());
  pieces.text = std::move(text);
  pieces.starts_input = starts_input;
  if (pre_tokenizer_ != nullptr) {
    RETURN_IF_ERROR(pre_tokenizer_->Apply(&pieces));
  }
  for (size_t i = 0; i < pieces.pieces.size(); ++i) {
    RETURN_IF_ERROR(model_->Tokenize(pieces[i], ids));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeText(absl::string_view text, bool starts_input,
                                   std::vector<int32_t>* ids) const {
  std::string normalized(text);
  if (normalizer_ != nullptr) {
    RETURN_IF_ERROR(normalizer_->Apply(&normalized));
  }
  for (const Segment& segment : added_tokens_.Cut(normalized, /*normalized=*/true)) {
    if (segment.id.has_value()) {
      ids->push_back(*segment.id);
      continue;
    }
    const auto [begin, end] = segment.range;
    RETURN_IF_ERROR(
        EncodePlain(normalized.substr(begin, end - begin), starts_input && begin == 0, ids));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       bool add_special_tokens) const {
  RETURN_IF_ERROR(ValidateUtf8(text));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4);
  for (const Segment& segment : added_tokens_.Cut(text, /*normalized=*/false)) {
    if (segment.id.has_value()) {
      ids.push_back(*segment.id);
      continue;
    }
    const auto [begin, end] = segment.range;
    RETURN_IF_ERROR(EncodeText(text.substr(begin, end - begin), begin == 0, &ids));
  }
  if (add_special_tokens && post_processor_.has_value()) {
    ids = post_processor_->Apply(std::move(ids));
  }
  return ids;
}

absl::StatusOr<const std::string*> Tokenizer::ShownToken(int32_t id,
                                                         bool skip_special_tokens) const {
  if (id < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids: ", id, " is not a token id; expected 0 or more"));
  }
  if (skip_special_tokens && IsSpecial(id)) return nullptr;
  const std::string* added = added_tokens_.DecodedForm(id);
  return added != nullptr ? added : model_->vocabulary().IdToToken(id);
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids,
                                              bool skip_special_tokens) const {
  DecodeStream stream(*decoder_);
  for (int32_t id : ids) {
    ASSIGN_OR_RETURN(const std::string* token, ShownToken(id, skip_special_tokens));
    if (token != nullptr) {
      RETURN_IF_ERROR(stream.Push(*token));
    }
  }
  RETURN_IF_ERROR(stream.Finish());
  return stream.TakeText();
}

absl::StatusOr<std::string> Tokenizer::RenderChat(const nlohmann::ordered_json& messages,
                                                  const ChatOptions& options) const {
  if (templates_.empty()) {
    return absl::FailedPreconditionError(
        "the model folder has no chat template; add chat_template.jinja, or \"chat_template\" to "
        "tokenizer_config.json");
  }
  if (!messages.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("messages: expected an array, found ", messages.type_name()));
  }
  if (!options.tools.is_null() && !options.tools.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tools: expected an array or null, found ", options.tools.type_name()));
  }
  for (const auto* json : {&messages, &options.tools, &options.extra}) {
    if (DeeperThan(*json, kMaxChatDepth)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "messages: the conversation nests deeper than ", kMaxChatDepth, " levels of JSON"));
    }
  }
  auto it = templates_.find("default");
  if (!options.tools.is_null() && templates_.contains("tool_use")) it = templates_.find("tool_use");
  if (it == templates_.end()) {
    std::string names;
    for (const auto& [name, unused] : templates_) absl::StrAppend(&names, " ", name);
    return absl::FailedPreconditionError(
        absl::StrCat("no chat template is named default; found:", names));
  }
  const ChatTemplate& chosen = it->second;
  nlohmann::ordered_json context = nlohmann::ordered_json::object();
  io::OrderedKeys keys;  // of those that others name, who may name many
  for (const auto& [name, token] : config_.special_tokens) keys.ValueAt(context, name) = token;
  if (options.extra.is_object()) {
    for (const auto& [name, value] : options.extra.items()) keys.ValueAt(context, name) = value;
  }
  context["messages"] = messages;
  context["tools"] = options.tools;
  if (!context.contains("documents")) context["documents"] = nullptr;
  context["add_generation_prompt"] = options.add_generation_prompt;
  absl::StatusOr<std::string> text =
      chosen.parsed.ok() ? chosen.parsed->Render(context) : chosen.parsed.status();
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(chosen.place, ": ", text.status().message()));
  }
  return text;
}

const std::string* Tokenizer::chat_template(bool with_tools) const {
  const auto& templates = config_.chat_templates;
  auto found = with_tools ? templates.find("tool_use") : templates.end();
  if (found == templates.end()) found = templates.find("default");
  return found == templates.end() ? nullptr : &found->second;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeChat(const nlohmann::ordered_json& messages,
                                                           const ChatOptions& options) const {
  ASSIGN_OR_RETURN(const std::string text, RenderChat(messages, options));
  return Encode(text, /*add_special_tokens=*/false);
}

size_t Tokenizer::vocab_size() const {
  return model_->vocabulary().size() + added_tokens_.num_beyond_model();
}

std::optional<int32_t> Tokenizer::TokenToId(absl::string_view token) const {
  if (const auto id = added_tokens_.TokenToId(token)) return id;
  return model_->vocabulary().TokenToId(token);
}

const std::string* Tokenizer::IdToToken(int32_t id) const {
  if (const AddedToken* token = added_tokens_.IdToToken(id)) return &token->content;
  return model_->vocabulary().IdToToken(id);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const std::string* token = IdToToken(id);
  return token != nullptr && added_tokens_.IsSpecial(*token);
}

std::optional<int32_t> Tokenizer::SpecialId(const std::string& name) const {
  const auto it = config_.special_tokens.find(name);
  if (it == config_.special_tokens.end()) return std::nullopt;
  return TokenToId(it->second);
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      stream_(*tokenizer.decoder_) {}

absl::StatusOr<std::string> IncrementalDecoder::Push(int32_t id) {
  ASSIGN_OR_RETURN(const std::string* token, tokenizer_.ShownToken(id, skip_special_tokens_));
  if (token != nullptr) {
    RETURN_IF_ERROR(stream_.Push(*token));
  }
  return stream_.TakeText();
}

absl::StatusOr<std::string> IncrementalDecoder::Finish() {
  RETURN_IF_ERROR(stream_.Finish());
  return stream_.TakeText();
}

}  // namespace tandem::tokenizer
