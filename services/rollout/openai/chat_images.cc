#include "services/rollout/openai/chat_images.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "common/images/image_source.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout::openai {
namespace {

absl::StatusOr<ImageFile> FileOf(const images::ChatImage& image) {
  const std::string& source = image.source;
  if (absl::StartsWithIgnoreCase(source, "http:") || absl::StartsWithIgnoreCase(source, "https:")) {
    return rpc::InvalidField(
        image.place,
        "images are not fetched over the network; send a data URL, data:image/png;base64,...");
  }
  if (!absl::StartsWithIgnoreCase(source, "data:")) {
    return rpc::InvalidField(
        image.place, "expected a data URL, data:image/png;base64,..., found another source");
  }
  absl::StatusOr<std::string> bytes = images::DecodeDataUrl(source);
  if (!bytes.ok()) return rpc::InvalidField(image.place, bytes.status().message());
  return std::make_shared<const std::string>(*std::move(bytes));
}

}  // namespace

absl::StatusOr<ReadImages> ReadChatImages(const nlohmann::ordered_json& messages,
                                          const ImageReading& reading,
                                          const tokenizer::Tokenizer& tokenizer) {
  ReadImages out;
  if (!reading.enabled()) return out;
  const std::string* const placeholder = tokenizer.IdToToken(reading.placeholder_id);
  ASSIGN_OR_RETURN(out.found, images::FindChatImages(messages, /*listed=*/nullptr,
                                                     placeholder == nullptr ? "" : *placeholder));
  for (const images::ChatImage& image : out.found) {
    ASSIGN_OR_RETURN(ImageFile file, FileOf(image));
    ASSIGN_OR_RETURN(const int64_t count, reading.count_rows(file, image.place));
    out.files.push_back(std::move(file));
    out.counts.push_back(count);
  }
  return out;
}

}  // namespace tandem::rollout::openai
