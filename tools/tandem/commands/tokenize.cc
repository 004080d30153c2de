// tandem tokenize: text to ids and back, with the model folder's own tokenizer.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/io/jsonl.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/chat_image_expander.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/image_url_option.h"
#include "tools/tandem/commands/row_images.h"
#include "tools/tandem/dataset/chat_options.h"

namespace tandem::commands {
namespace {

using nlohmann::json;

struct TokenizeOptions {
  std::string model;
  std::string input;
  bool decode = false;
  bool chat = false;
  bool add_special_tokens = false;
  bool allow_image_urls = false;
  bool skip_special_tokens = false;
};

absl::StatusOr<json> Decode(const tokenizer::Tokenizer& tokenizer, const io::JsonFields& row,
                            bool skip_special_tokens) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> wide, row.IntList("ids"));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (wide[i] < 0 || wide[i] > INT32_MAX) {
      return row.Error("ids", absl::StrCat("[", i, "]: ", wide[i], " is not a token id"));
    }
    ids.push_back(static_cast<int32_t>(wide[i]));
  }
  ASSIGN_OR_RETURN(std::string text, tokenizer.Decode(ids, skip_special_tokens));
  return json{{"text", std::move(text)}};
}

absl::StatusOr<json> EncodeChat(const tokenizer::Tokenizer& tokenizer,
                                const ChatImageExpander& images, const io::JsonFields& row) {
  // Parsed again with its keys in order: templates print tools as they were given.
  ASSIGN_OR_RETURN(const nlohmann::ordered_json request, io::ParseOrderedJson(row.source()));
  const auto messages = request.find("messages");
  if (messages == request.end()) return row.Error("messages", "expected a list of messages");
  ASSIGN_OR_RETURN(
      tokenizer::ChatOptions options,
      dataset::ReadChatOptions(request, row.Has("tools") ? "tools" : "", /*variables=*/""));
  ASSIGN_OR_RETURN(options.add_generation_prompt, row.BoolOr("add_generation_prompt", false));
  ASSIGN_OR_RETURN(std::string text, tokenizer.RenderChat(*messages, options));
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(images.TextForTokens(text), false));
  ASSIGN_OR_RETURN(const std::vector<images::ChatImage> found, images.Find(*messages, request));
  ASSIGN_OR_RETURN(const ExpandedChat chat, images.Expand(found, std::move(ids)));
  return json{{"ids", chat.ids}, {"text", std::move(text)}};
}

absl::Status RunTokenize(const TokenizeOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<tokenizer::Tokenizer> tokenizer,
                   tokenizer::Tokenizer::Load(options.model));
  const RowImages files(options.input, FetchingIf(options.allow_image_urls));
  const ChatImageExpander images(options.model, files, *tokenizer);
  return io::ForEachJsonLine(options.input, [&](const io::JsonFields& row) -> absl::Status {
    json out;
    if (options.decode) {
      ASSIGN_OR_RETURN(out, Decode(*tokenizer, row, options.skip_special_tokens));
    } else if (options.chat) {
      ASSIGN_OR_RETURN(out, EncodeChat(*tokenizer, images, row));
    } else {
      ASSIGN_OR_RETURN(const std::string text, row.String("text"));
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       tokenizer->Encode(text, options.add_special_tokens));
      out = {{"ids", ids}};
    }
    const std::string line = io::ToJsonLine(out);
    std::fwrite(line.data(), 1, line.size(), stdout);
    return absl::OkStatus();
  });
}

}  // namespace

void AddTokenize(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("tokenize", "Converts text to token ids and back");
  auto options = std::make_shared<TokenizeOptions>();
  command->add_option("--model", options->model, "Folder with tokenizer.json; needs no weights")
      ->required();
  command
      ->add_option("--input", options->input,
                   R"(JSONL of {"text"}, {"ids"} or {"messages"}; /dev/stdin for a pipe)")
      ->required();
  auto* decode = command->add_flag("--decode", options->decode, "Converts ids to text");
  auto* chat =
      command
          ->add_flag("--chat", options->chat,
                     "Applies the chat template to messages, and gives each image its tokens")
          ->excludes(decode);
  AddImageUrlsOption(*command, options->allow_image_urls)->needs(chat);
  command->add_flag("--add-special-tokens", options->add_special_tokens,
                    "Adds the tokenizer's special tokens");
  command->add_flag("--skip-special-tokens", options->skip_special_tokens,
                    "With --decode: omits special tokens");
  command->callback([&runner, options] { runner = [options] { return RunTokenize(*options); }; });
}

}  // namespace tandem::commands
