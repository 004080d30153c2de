#include "tools/tandem/commands/prompt_row.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "tools/tandem/dataset/chat_messages.h"
#include "tools/tandem/dataset/chat_options.h"

namespace tandem::commands {
namespace {

using nlohmann::ordered_json;

std::vector<driver::PromptImage> PromptImagesOf(std::vector<ImageFile> files) {
  std::vector<driver::PromptImage> images;
  for (ImageFile& file : files) {
    images.push_back({.source = "", .digest = "", .file = std::move(file)});
  }
  return images;
}

absl::StatusOr<driver::Prompt> ReadIds(const io::JsonFields& row, const RowImages& images) {
  driver::Prompt prompt;
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, row.IntList("ids"));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > UINT32_MAX) {
      return row.Error("ids", absl::StrCat("[", i, "]: ", ids[i], " is not a token id"));
    }
    prompt.token_ids.push_back(static_cast<uint32_t>(ids[i]));
  }
  ASSIGN_OR_RETURN(std::vector<ImageFile> files, images.Read(row));
  prompt.images = PromptImagesOf(std::move(files));
  return prompt;
}

absl::StatusOr<driver::Prompt> RenderMessages(const io::JsonFields& row, const char* key,
                                              const PromptRowReaders& readers) {
  // With its keys in order: templates print tools as they were given.
  ASSIGN_OR_RETURN(const ordered_json ordered, io::ParseOrderedJson(row.source()));
  ASSIGN_OR_RETURN(tokenizer::ChatOptions chat,
                   dataset::ReadChatOptions(ordered, ordered.contains("tools") ? "tools" : "",
                                            readers.variables));
  chat.add_generation_prompt = true;
  std::vector<images::ChatImage> images;
  if (readers.chat_images != nullptr) {
    ASSIGN_OR_RETURN(images, readers.chat_images->Find(ordered[key], ordered));
  }
  ordered_json messages = ordered[key];
  if (images.empty()) {
    ASSIGN_OR_RETURN(messages, dataset::ReadMessages(ordered[key], key));
  }
  driver::Prompt prompt;
  ASSIGN_OR_RETURN(prompt.text, readers.tokenizer->RenderChat(messages, chat));
  const std::string text = readers.chat_images == nullptr
                               ? prompt.text
                               : readers.chat_images->TextForTokens(prompt.text);
  ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                   readers.tokenizer->Encode(text, /*add_special_tokens=*/false));
  if (readers.chat_images != nullptr) {
    ASSIGN_OR_RETURN(ExpandedChat expanded, readers.chat_images->Expand(images, std::move(ids)));
    ids = std::move(expanded.ids);
    prompt.images = PromptImagesOf(std::move(expanded.images));
  }
  prompt.token_ids.assign(ids.begin(), ids.end());
  return prompt;
}

}  // namespace

absl::StatusOr<driver::Prompt> ReadPromptRow(const io::JsonFields& row,
                                             const PromptRowReaders& readers) {
  if (row.Has("ids")) return ReadIds(row, readers.images);
  const bool has_prompt = row.Has("prompt");
  if (has_prompt && !dataset::IsMessageList(row.json()["prompt"])) {
    if (row.Has("images")) {
      return row.Error("images", "a prompt of text has no place for images; give ids or messages");
    }
    driver::Prompt prompt;
    ASSIGN_OR_RETURN(prompt.text, row.String("prompt"));
    return prompt;
  }
  const char* const key = has_prompt ? "prompt" : "messages";
  if (!row.Has(key)) return row.Error("prompt", "expected prompt, ids or messages");
  if (readers.tokenizer == nullptr) {
    return row.Error(key, "messages need the model's chat template: give --model DIR");
  }
  return RenderMessages(row, key, readers);
}

}  // namespace tandem::commands
