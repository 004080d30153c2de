#include "tools/tandem/driver/row_urls.h"

#include "absl/status/statusor.h"
#include "common/images/chat/chat_images.h"
#include "common/images/image_source.h"
#include "tools/tandem/dataset/row_keys.h"

namespace tandem::driver {
namespace {

using nlohmann::json;

void AddIfUrl(const std::string& source, std::vector<std::string>& urls) {
  if (images::IsWebUrl(source)) urls.push_back(source);
}

void AddMessages(const json& messages, std::vector<std::string>& urls) {
  const absl::StatusOr<std::vector<images::ChatImage>> found = images::FindChatImages(
      nlohmann::ordered_json(messages), /*listed=*/nullptr, /*placeholder=*/"");
  if (!found.ok()) return;
  for (const images::ChatImage& image : *found) AddIfUrl(image.source, urls);
}

}  // namespace

std::vector<std::string> RowUrls(const json& row, const dataset::RowForm& form,
                                 const config::v1::DataConfig& config) {
  std::vector<std::string> urls;
  const json* const listed = dataset::FindKey(row, config.image_key());
  if (listed != nullptr && listed->is_array()) {
    for (const json& source : *listed) {
      if (source.is_string()) AddIfUrl(source.get_ref<const std::string&>(), urls);
    }
  }
  for (const std::string* key :
       {&form.prompt_key, &form.completion_key, &form.chosen_key, &form.rejected_key}) {
    const json* const messages = key->empty() ? nullptr : dataset::FindKey(row, *key);
    if (messages != nullptr) AddMessages(*messages, urls);
  }
  return urls;
}

}  // namespace tandem::driver
