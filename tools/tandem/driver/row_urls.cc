#include "tools/tandem/driver/row_urls.h"

#include "common/images/image_source.h"
#include "tools/tandem/dataset/row_keys.h"

namespace tandem::driver {
namespace {

using nlohmann::json;

void AddIfUrl(const json& value, std::vector<std::string>& urls) {
  if (!value.is_string()) return;
  const std::string& text = value.get_ref<const std::string&>();
  if (images::IsWebUrl(text)) urls.push_back(text);
}

// As images::FindChatImages() finds the source of a part.
void AddPart(const json& part, std::vector<std::string>& urls) {
  const json type = part.value("type", json());
  if (type != "image" && type != "image_url") return;
  for (const char* key : {"image", "image_url", "url"}) {
    const auto found = part.find(key);
    if (found == part.end() || found->is_null()) continue;
    AddIfUrl(found->is_object() ? found->value("url", json()) : *found, urls);
    return;
  }
}

void AddMessages(const json& messages, std::vector<std::string>& urls) {
  if (!messages.is_array()) return;
  for (const json& message : messages) {
    if (!message.is_object()) continue;
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    for (const json& part : *content) {
      if (part.is_object()) AddPart(part, urls);
    }
  }
}

}  // namespace

std::vector<std::string> RowUrls(const json& row, const dataset::RowForm& form,
                                 const config::v1::DataConfig& config) {
  std::vector<std::string> urls;
  const json* const listed = dataset::FindKey(row, config.image_key());
  if (listed != nullptr && listed->is_array()) {
    for (const json& source : *listed) AddIfUrl(source, urls);
  }
  for (const std::string* key :
       {&form.prompt_key, &form.completion_key, &form.chosen_key, &form.rejected_key}) {
    const json* const messages = key->empty() ? nullptr : dataset::FindKey(row, *key);
    if (messages != nullptr) AddMessages(*messages, urls);
  }
  return urls;
}

}  // namespace tandem::driver
