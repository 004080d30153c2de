#include "tools/tandem/commands/chat_image_expander.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/images/decode.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::commands {
namespace {

// Of Qwen's vision-language models, whose processor is the one with known placeholders.
constexpr absl::string_view kImagePlaceholder = "<|image_pad|>";

}  // namespace

ChatImageExpander::ChatImageExpander(const std::string& model_folder, const RowImages& images,
                                     const tokenizer::Tokenizer& tokenizer)
    : processor_(images::ImageProcessor::Load(model_folder)),
      images_(images),
      placeholder_id_(tokenizer.TokenToId(kImagePlaceholder)) {}

absl::StatusOr<std::vector<images::ChatImage>> ChatImageExpander::Find(
    const nlohmann::ordered_json& messages, const nlohmann::ordered_json& row) const {
  const auto listed = row.find("images");
  const bool has_list = listed != row.end() && !listed->is_null();
  // To a model without images the placeholder is a text like any other.
  const bool sees_images = processor_.ok() && placeholder_id_.has_value();
  ASSIGN_OR_RETURN(std::vector<images::ChatImage> found,
                   images::FindChatImages(messages, has_list ? &*listed : nullptr,
                                          sees_images ? kImagePlaceholder : ""));
  if (sees_images || found.empty()) return found;
  if (!processor_.ok()) return io::AtPlace(found[0].place, processor_.status());
  return io::AtPlace(found[0].place, absl::FailedPreconditionError(absl::StrCat(
                                         "the tokenizer has no token ", kImagePlaceholder)));
}

absl::StatusOr<ExpandedChat> ChatImageExpander::Expand(const std::vector<images::ChatImage>& found,
                                                       std::vector<int32_t> ids) const {
  // Without images the ids are as they are. A model that sees some may have a placeholder too many.
  if (found.empty() && !(processor_.ok() && placeholder_id_.has_value())) {
    return ExpandedChat{std::move(ids), {}};
  }
  const images::ImageLimits limits;
  ExpandedChat chat;
  std::vector<int64_t> counts;
  for (const images::ChatImage& image : found) {
    const auto count = [&]() -> absl::StatusOr<int64_t> {
      ASSIGN_OR_RETURN(images::ImageBytes read, images_.ReadSource(image.source));
      ASSIGN_OR_RETURN(const images::Image decoded,
                       images::DecodeImage(read.bytes, read.place, limits));
      chat.images.push_back(std::make_shared<const std::string>(std::move(read.bytes)));
      return processor_->NumPlaceholders({decoded.height, decoded.width});
    }();
    if (!count.ok()) return io::AtPlace(image.place, count.status());
    counts.push_back(*count);
  }
  ASSIGN_OR_RETURN(chat.ids, images::ExpandPlaceholders(ids, *placeholder_id_, found, counts));
  return chat;
}

}  // namespace tandem::commands
