// Converts text to token ids and back, with the tokenizer of a Hugging Face model folder.
//
//   ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load("/models/qwen"));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids,
//                    tokenizer->Encode("Hello", /*add_special_tokens=*/true));
//   ASSIGN_OR_RETURN(std::string text, tokenizer->Decode(ids, /*skip_special_tokens=*/true));
//   ASSIGN_OR_RETURN(std::string prompt,
//                    tokenizer->RenderChat(messages, {.add_generation_prompt = true}));
//
// Ids and text match Hugging Face's tokenizers 0.23 and, for chats, transformers'
// apply_chat_template. "truncation" and "padding" of tokenizer.json are ignored.
#ifndef TANDEM_COMMON_TOKENIZER_TOKENIZER_H_
#define TANDEM_COMMON_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/jinja/template.h"
#include "common/tokenizer/model.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/tokenizer_config.h"

namespace tandem::tokenizer {

struct ChatOptions {
  // Ends the text with the header of an assistant's message.
  bool add_generation_prompt = false;
  // A list of function schemas, or null. Key order is kept.
  nlohmann::ordered_json tools;
  // More variables for the template, an object ("enable_thinking": false). They override the
  // special tokens' names.
  nlohmann::ordered_json extra;
};

// Immutable after Load(), except for a bounded cache: any thread may call any method. Loading reads
// the whole vocabulary: about half a second and 60 MiB for 150,000 tokens.
class Tokenizer {
 public:
  // Reads tokenizer.json and the files beside it. NotFound without tokenizer.json, with the command
  // that makes one of a tokenizer.model or another file that is there; InvalidArgument names the
  // malformed file and key, Unimplemented the unknown component. Only RenderChat() reports a chat
  // template that does not parse.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& model_folder);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Always recognises special tokens in the text; `add_special_tokens` adds those that the
  // post-processor puts around a text. InvalidArgument with the byte offset when `text` is not
  // UTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              bool add_special_tokens) const;

  // Skips ids without a token, like the reference; InvalidArgument for a negative id.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const;

  // Renders messages [{"role", "content", ...}] with the chat template: "tool_use" if it exists and
  // tools are given, else "default". FailedPrecondition without a template, InvalidArgument with
  // the template's line when it fails or raises.
  absl::StatusOr<std::string> RenderChat(const nlohmann::ordered_json& messages,
                                         const ChatOptions& options) const;
  // Returns the ids of RenderChat()'s text; adds nothing to what the template writes.
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const nlohmann::ordered_json& messages,
                                                  const ChatOptions& options) const;
  bool has_chat_template() const { return !templates_.empty(); }
  // The text of the template that RenderChat() takes; null without one.
  const std::string* chat_template(bool with_tools) const;

  // Number of tokens, added ones included.
  size_t vocab_size() const;
  std::optional<int32_t> TokenToId(absl::string_view token) const;
  // The token as written in the vocabulary; null when there is none.
  const std::string* IdToToken(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // The tokens that tokenizer_config.json names.
  std::optional<int32_t> bos_id() const { return SpecialId("bos_token"); }
  std::optional<int32_t> eos_id() const { return SpecialId("eos_token"); }
  std::optional<int32_t> pad_id() const { return SpecialId("pad_token"); }
  std::optional<int32_t> unk_id() const { return SpecialId("unk_token"); }

 private:
  friend class IncrementalDecoder;
  struct ChatTemplate {
    std::string place;
    absl::StatusOr<jinja::Template> parsed;
  };

  Tokenizer() = default;
  absl::Status ReadTokenizerJson(const JsonNode& root);
  absl::Status EncodeText(absl::string_view text, bool starts_input,
                          std::vector<int32_t>* ids) const;
  absl::Status EncodePlain(std::string text, bool starts_input, std::vector<int32_t>* ids) const;
  // The token that decoding shows for an id; null to omit it.
  absl::StatusOr<const std::string*> ShownToken(int32_t id, bool skip_special_tokens) const;
  std::optional<int32_t> SpecialId(const std::string& name) const;

  std::unique_ptr<Model> model_;
  std::unique_ptr<Normalizer> normalizer_;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer_;  // may be null
  std::optional<PostProcessor> post_processor_;
  std::optional<Decoder> decoder_;
  AddedTokens added_tokens_;
  TokenizerConfig config_;
  std::map<std::string, ChatTemplate> templates_;
};

// Decodes ids one at a time. The texts that Push() and Finish() return are complete UTF-8, and
// concatenated they equal Decode() of all ids. Single-threaded; the tokenizer must outlive it.
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);

  // Returns the text that this id makes final; often empty inside a character.
  absl::StatusOr<std::string> Push(int32_t id);
  // Returns the rest. An unfinished character becomes U+FFFD. Do not push after it.
  absl::StatusOr<std::string> Finish();

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  DecodeStream stream_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_TOKENIZER_H_
