#include "services/rollout/openai/chat_images.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_source.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout::openai {
namespace {

// Why an image was not fetched: mostly for the client, who named the URL.
absl::Status FetchError(const std::string& place, const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  return rpc::InvalidField(place, status.message());
}

absl::StatusOr<ImageFile> FileOf(const images::ChatImage& image, const ImageReading& reading) {
  const std::string& source = image.source;
  if (images::IsWebUrl(source)) {
    if (reading.fetch == nullptr) {
      return rpc::InvalidField(
          image.place,
          "images are not fetched over the network; send a data URL, data:image/png;base64,..., or "
          "start the rollout with --allow-image-urls");
    }
    absl::StatusOr<std::string> bytes = reading.fetch(source);
    if (!bytes.ok()) return FetchError(image.place, bytes.status());
    return std::make_shared<const std::string>(*std::move(bytes));
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
  out.placeholders.placeholder = reading.placeholder_id;
  if (out.found.empty()) return out;
  ASSIGN_OR_RETURN(out.placeholders, reading.find_placeholders());
  int64_t num_bytes = 0;
  for (const images::ChatImage& image : out.found) {
    ASSIGN_OR_RETURN(ImageFile file, FileOf(image, reading));
    num_bytes += static_cast<int64_t>(file->size());
    if (num_bytes > kMaxChatImageBytes) {
      return rpc::InvalidField(
          image.place, absl::StrCat("expected at most ", kMaxChatImageBytes,
                                    " bytes of images in a chat, found ", num_bytes, " and more"));
    }
    ASSIGN_OR_RETURN(out.grids.emplace_back(), reading.grid_of(file, image.place));
    out.files.push_back(std::move(file));
  }
  return out;
}

}  // namespace tandem::rollout::openai
