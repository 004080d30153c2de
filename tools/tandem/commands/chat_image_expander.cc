#include "tools/tandem/commands/chat_image_expander.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/images/chat/find_placeholders.h"
#include "common/images/decode.h"
#include "common/images/processor/image_processor.h"
#include "common/io/file_util.h"
#include "common/io/model_config.h"
#include "common/model/images/image_preparer.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"

namespace tandem::commands {
namespace {

// The tower of a model that sees tiles; a folder may have no config.json, or one of another model.
std::optional<model::VisionSpec> TilesOf(const std::string& model_folder) {
  const absl::StatusOr<io::ModelConfig> config = io::ReadModelConfig(model_folder);
  if (!config.ok()) return std::nullopt;
  absl::StatusOr<model::ModelSpec> spec = model::ParseModelSpec(config->json, config->path);
  if (!spec.ok() || !spec->vision.has_value() || !spec->vision->tiles.has_value()) {
    return std::nullopt;
  }
  return std::move(spec->vision);
}

}  // namespace

absl::StatusOr<ChatImageExpander::Reading> ChatImageExpander::ReadingOf(
    const std::string& model_folder, const tokenizer::Tokenizer& tokenizer) {
  Reading out;
  images::PlaceholderTexts texts;
  std::optional<int32_t> id;
  if (const std::optional<model::VisionSpec> vision = TilesOf(model_folder); vision.has_value()) {
    ASSIGN_OR_RETURN(model::ImagePreparer preparer,
                     model::ImagePreparer::Load(model_folder, *vision));
    texts = preparer.placeholders();
    id = static_cast<int32_t>(vision->image_token_id);
    const std::string* const text = tokenizer.IdToToken(*id);
    if (text == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tokenizer has no token with the id ", vision->image_token_id,
                       ", which stands for images; take the tokenizer.json of this model"));
    }
    if (texts.written.empty()) texts.placeholder = *text;
    out.grid_of = [preparer = std::move(preparer)](images::ImageSize size, images::ImageForm form) {
      return preparer.Placeholders(size, form);
    };
  } else {
    ASSIGN_OR_RETURN(images::ImageProcessor processor, images::ImageProcessor::Load(model_folder));
    texts = processor.config().placeholders;
    if (texts.placeholder.empty()) {
      return absl::UnimplementedError(
          absl::StrCat(processor.config().place, ": placeholders of ", processor.config().type,
                       " are not known without the config.json of a model that sees tiles"));
    }
    id = tokenizer.TokenToId(texts.placeholder);
    if (!id.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tokenizer has no token ", texts.placeholder));
    }
    out.grid_of = [processor = std::move(processor)](images::ImageSize size,
                                                     images::ImageForm /*form*/) {
      return processor.Placeholders(size);
    };
  }
  out.placeholder = texts.written.empty() ? texts.placeholder : texts.written;
  ASSIGN_OR_RETURN(out.ids, images::FindPlaceholderIds(*id, texts, &tokenizer));
  return out;
}

ChatImageExpander::ChatImageExpander(const std::string& model_folder, const RowImages& images,
                                     const tokenizer::Tokenizer& tokenizer)
    : reading_(ReadingOf(model_folder, tokenizer)), images_(images) {}

absl::StatusOr<std::vector<images::ChatImage>> ChatImageExpander::Find(
    const nlohmann::ordered_json& messages, const nlohmann::ordered_json& row) const {
  const auto listed = row.find("images");
  const bool has_list = listed != row.end() && !listed->is_null();
  // To a model without images the placeholder is a text like any other.
  ASSIGN_OR_RETURN(std::vector<images::ChatImage> found,
                   images::FindChatImages(messages, has_list ? &*listed : nullptr,
                                          reading_.ok() ? reading_->placeholder : ""));
  if (reading_.ok() || found.empty()) return found;
  return io::AtPlace(found[0].place, reading_.status());
}

absl::StatusOr<ExpandedChat> ChatImageExpander::Expand(const std::vector<images::ChatImage>& found,
                                                       std::vector<int32_t> ids) const {
  // Without images the ids are as they are. A model that sees some may have a placeholder too many.
  if (found.empty() && !reading_.ok()) return ExpandedChat{std::move(ids), {}};
  const images::ImageLimits limits;
  ExpandedChat chat;
  std::vector<images::PlaceholderGrid> grids;
  const images::ImageForm form = images::FormOfEach(found.size());
  for (const images::ChatImage& image : found) {
    const auto grid = [&]() -> absl::StatusOr<images::PlaceholderGrid> {
      ASSIGN_OR_RETURN(images::ImageBytes read, images_.ReadSource(image.source));
      ASSIGN_OR_RETURN(const images::Image decoded,
                       images::DecodeImage(read.bytes, read.place, limits));
      chat.images.push_back(std::make_shared<const std::string>(std::move(read.bytes)));
      return reading_->grid_of({decoded.height, decoded.width}, form);
    }();
    if (!grid.ok()) return io::AtPlace(image.place, grid.status());
    grids.push_back(*grid);
  }
  ASSIGN_OR_RETURN(chat.ids, images::ExpandPlaceholders(ids, reading_->ids, found, grids));
  return chat;
}

}  // namespace tandem::commands
