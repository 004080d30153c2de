#include "tools/tandem/commands/chat_image_expander.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/images/chat/chat_images.h"
#include "common/images/decode.h"
#include "common/images/image_source.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::commands {
namespace {

// Of Qwen's vision-language models, whose processor is the one with known placeholders.
constexpr absl::string_view kImagePlaceholder = "<|image_pad|>";

}  // namespace

ChatImageExpander::ChatImageExpander(const std::string& model_folder, const std::string& input,
                                     const tokenizer::Tokenizer& tokenizer)
    : processor_(images::ImageProcessor::Load(model_folder)),
      placeholder_id_(tokenizer.TokenToId(kImagePlaceholder)) {
  std::error_code error;
  image_folder_ = std::filesystem::is_regular_file(input, error) ? io::ParentFolder(input) : ".";
}

absl::StatusOr<std::vector<int32_t>> ChatImageExpander::Expand(const nlohmann::ordered_json& row,
                                                               std::vector<int32_t> ids) const {
  const auto messages = row.find("messages");
  const auto listed = row.find("images");
  const bool has_list = listed != row.end() && !listed->is_null();
  // To a model without images the placeholder is a text like any other.
  const bool sees_images = processor_.ok() && placeholder_id_.has_value();
  ASSIGN_OR_RETURN(const std::vector<images::ChatImage> found,
                   images::FindChatImages(*messages, has_list ? &*listed : nullptr,
                                          sees_images ? kImagePlaceholder : ""));
  if (!sees_images && found.empty()) return ids;
  if (!processor_.ok()) return io::AtPlace(found[0].place, processor_.status());
  if (!placeholder_id_) {
    return io::AtPlace(found[0].place, absl::FailedPreconditionError(absl::StrCat(
                                           "the tokenizer has no token ", kImagePlaceholder)));
  }
  const images::ImageLimits limits;
  std::vector<int64_t> counts;
  for (const images::ChatImage& image : found) {
    const auto count = [&]() -> absl::StatusOr<int64_t> {
      ASSIGN_OR_RETURN(const images::ImageBytes read,
                       images::ReadImageSource(image.source, image_folder_, limits));
      ASSIGN_OR_RETURN(const images::Image decoded,
                       images::DecodeImage(read.bytes, read.place, limits));
      return processor_->NumPlaceholders({decoded.height, decoded.width});
    }();
    if (!count.ok()) return io::AtPlace(image.place, count.status());
    counts.push_back(*count);
  }
  return images::ExpandPlaceholders(ids, *placeholder_id_, found, counts);
}

}  // namespace tandem::commands
