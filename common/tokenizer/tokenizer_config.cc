#include "common/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

// Tokens are strings or {"content": "..."}. Keeps those already known.
absl::Status ReadSpecialTokens(const JsonNode& root, TokenizerConfig* config) {
  for (const char* name : kSpecialTokens) {
    ASSIGN_OR_RETURN(const std::optional<JsonNode> node, root.Find(name));
    if (!node.has_value()) continue;
    std::string content;
    if (node->value().is_object()) {
      ASSIGN_OR_RETURN(const JsonNode content_node, node->Field("content"));
      ASSIGN_OR_RETURN(content, content_node.String());
    } else {
      ASSIGN_OR_RETURN(content, node->String());
    }
    config->special_tokens.emplace(name, std::move(content));
  }
  return absl::OkStatus();
}

// A template, or [{"name": ..., "template": ...}].
absl::Status ReadTemplates(const JsonNode& node, TokenizerConfig* config) {
  if (!node.value().is_array()) {
    ASSIGN_OR_RETURN(config->chat_templates["default"], node.String());
    config->template_places["default"] = node.Place();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const size_t count, node.ArraySize());
  for (size_t i = 0; i < count; ++i) {
    const JsonNode entry = node.At(i);
    ASSIGN_OR_RETURN(const JsonNode name_node, entry.Field("name"));
    ASSIGN_OR_RETURN(const std::string name, name_node.String());
    ASSIGN_OR_RETURN(const JsonNode template_node, entry.Field("template"));
    ASSIGN_OR_RETURN(config->chat_templates[name], template_node.String());
    config->template_places[name] = template_node.Place();
  }
  return absl::OkStatus();
}

absl::Status ReadTemplateFile(const std::string& path, const std::string& name,
                              TokenizerConfig* config) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  if (const absl::Status valid = ValidateUtf8(*text); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", valid.message()));
  }
  config->chat_templates[name] = *std::move(text);
  config->template_places[name] = path;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder) {
  TokenizerConfig config;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = absl::StrCat(folder, "/", file);
    const absl::StatusOr<nlohmann::json> json = ReadJsonFile(path);
    if (absl::IsNotFound(json.status())) continue;
    RETURN_IF_ERROR(json.status());
    const JsonNode root(*json, path);
    RETURN_IF_ERROR(ReadSpecialTokens(root, &config));
    ASSIGN_OR_RETURN(const std::optional<JsonNode> templates, root.Find("chat_template"));
    if (templates.has_value()) {
      RETURN_IF_ERROR(ReadTemplates(*templates, &config));
    }
  }
  RETURN_IF_ERROR(
      ReadTemplateFile(absl::StrCat(folder, "/chat_template.jinja"), "default", &config));
  // Further templates are in a folder.
  std::error_code error;
  std::vector<std::filesystem::path> more;
  for (std::filesystem::directory_iterator it(folder + "/additional_chat_templates", error), end;
       !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".jinja") more.push_back(it->path());
  }
  std::sort(more.begin(), more.end());
  for (const std::filesystem::path& path : more) {
    RETURN_IF_ERROR(ReadTemplateFile(path.string(), path.stem().string(), &config));
  }
  return config;
}

}  // namespace tandem::tokenizer
