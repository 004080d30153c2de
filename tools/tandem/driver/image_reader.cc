#include "tools/tandem/driver/image_reader.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/images/chat/find_placeholders.h"
#include "common/images/decode.h"
#include "common/images/image_source.h"
#include "common/io/file_util.h"
#include "common/io/model_config.h"
#include "common/model/image_forms.h"
#include "common/model/image_places.h"
#include "common/model/images/image_preparer.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

using nlohmann::ordered_json;

absl::StatusOr<std::unique_ptr<ImageReader>> ImageReader::Create(
    const std::string& model_folder, const tokenizer::Tokenizer* tokenizer, const UrlImages* urls) {
  ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(model_folder));
  ASSIGN_OR_RETURN(const model::ModelSpec model, model::ParseModelSpec(config.json, config.path));
  if (!model.vision.has_value()) return nullptr;
  const model::VisionSpec& spec = *model.vision;
  ASSIGN_OR_RETURN(model::ImagePreparer preparer, model::ImagePreparer::Load(model_folder, spec));
  std::string placeholder;
  images::PlaceholderIds placeholders{.placeholder = static_cast<int32_t>(spec.image_token_id)};
  const absl::StatusOr<images::PlaceholderIds> found =
      images::FindPlaceholderIds(placeholders.placeholder, preparer.placeholders(), tokenizer);
  if (found.ok()) placeholders = *found;
  if (tokenizer != nullptr) {
    const std::string* const text = tokenizer->IdToToken(placeholders.placeholder);
    if (text == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          model_folder, ": tokenizer.json has no token with the image_token_id of config.json, ",
          spec.image_token_id));
    }
    if (!found.ok()) return io::AtPlace(model_folder, found.status());
    placeholder = found->written.empty() ? *text : found->written;
  }
  return std::unique_ptr<ImageReader>(
      new ImageReader(std::move(preparer), spec, std::move(placeholder), placeholders, urls));
}

absl::StatusOr<ImageReader::Images> ImageReader::ReadFiles(
    std::vector<images::ChatImage> found, const std::vector<images::ImageForm>& forms,
    const std::string& folder) const {
  const images::ImageLimits limits;
  Images out;
  out.placeholders_ = placeholders_;
  int64_t num_bytes = 0;
  for (const images::ChatImage& image : found) {
    const auto read = [&]() -> absl::Status {
      std::string source = image.source;
      if (urls_ != nullptr && images::IsWebUrl(source)) {
        ASSIGN_OR_RETURN(const PromptImage kept, urls_->Get(source));
        source = kept.source;
      }
      ASSIGN_OR_RETURN(const images::ImageBytes file,
                       images::ReadImageSource(source, folder, limits));
      ASSIGN_OR_RETURN(const images::Image decoded,
                       images::DecodeImage(file.bytes, file.place, limits));
      ASSIGN_OR_RETURN(
          out.grids_.emplace_back(),
          preparer_.Placeholders({decoded.height, decoded.width}, forms[out.files_.size()]));
      out.files_.push_back(MakePromptImage(source, folder, file.bytes));
      num_bytes += static_cast<int64_t>(file.bytes.size());
      return absl::OkStatus();
    };
    if (const absl::Status status = read(); !status.ok()) return io::AtPlace(image.place, status);
    if (num_bytes > kMaxRowBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          image.place, ": expected at most ", kMaxRowBytes, " bytes of images in a row, found ",
          num_bytes, " and more; make the pictures smaller"));
    }
  }
  out.found_ = std::move(found);
  return out;
}

absl::StatusOr<ImageReader::Images> ImageReader::Read(const ordered_json& messages,
                                                      const ordered_json* listed,
                                                      const std::string& folder) const {
  ASSIGN_OR_RETURN(std::vector<images::ChatImage> found,
                   images::FindChatImages(messages, listed, placeholder_));
  const std::vector<images::ImageForm> forms(found.size(), images::FormOfEach(found.size()));
  return ReadFiles(std::move(found), forms, folder);
}

absl::StatusOr<ImageReader::Images> ImageReader::ReadFor(absl::Span<const uint32_t> ids,
                                                         const ordered_json& listed,
                                                         const std::string& folder) const {
  // Each listed image has a part of its own.
  ordered_json parts = ordered_json::array();
  for (size_t i = 0; listed.is_array() && i < listed.size(); ++i) {
    parts.push_back({{"type", "image"}});
  }
  ordered_json messages = ordered_json::array();
  messages.push_back({{"role", "user"}, {"content", std::move(parts)}});
  ASSIGN_OR_RETURN(std::vector<images::ChatImage> found,
                   images::FindChatImages(messages, &listed, ""));
  for (size_t i = 0; i < found.size(); ++i) found[i].place = absl::StrCat("images[", i, "]");
  const std::vector<images::ImageForm> forms =
      model::FormsOf(spec_, std::vector<int64_t>(ids.begin(), ids.end()), found.size());
  ASSIGN_OR_RETURN(Images out, ReadFiles(std::move(found), forms, folder));
  RETURN_IF_ERROR(CheckFit(ids, out));
  return out;
}

absl::Status ImageReader::CheckFit(absl::Span<const uint32_t> ids, const Images& images) const {
  std::vector<model::ImageGrid> grids;
  for (const images::PlaceholderGrid& grid : images.grids_) {
    grids.push_back(preparer_.PatchesOf(grid));
  }
  return model::PlaceImages(spec_, std::vector<int64_t>(ids.begin(), ids.end()), grids).status();
}

absl::StatusOr<ImageReader::Images> ImageReader::ReadShown(const std::vector<ImageFile>& files,
                                                           size_t num_before,
                                                           const ImageStore& store) const {
  const images::ImageLimits limits;
  const images::ImageForm form = images::FormOfEach(num_before + files.size());
  Images out;
  out.placeholders_ = placeholders_;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string place = absl::StrCat("images[", i, "]");
    ASSIGN_OR_RETURN(const images::Image decoded, images::DecodeImage(*files[i], place, limits));
    const absl::StatusOr<images::PlaceholderGrid> grid =
        preparer_.Placeholders({decoded.height, decoded.width}, form);
    if (!grid.ok()) return io::AtPlace(place, grid.status());
    ASSIGN_OR_RETURN(PromptImage kept, store.Keep(*files[i]));
    out.files_.push_back(std::move(kept));
    out.grids_.push_back(*grid);
    out.found_.push_back({"", place});
  }
  return out;
}

ImageReader::Images ImageReader::Expanded(absl::Span<const uint32_t> ids,
                                          const std::vector<PromptImage>& files) const {
  Images out;
  out.placeholders_ = placeholders_;
  out.files_ = files;
  for (const images::PlacedPlaceholders& image :
       images::FindPlaceholders(placeholders_, ids, files.size())) {
    out.found_.push_back({"", absl::StrCat("images[", out.grids_.size(), "]")});
    out.grids_.push_back(image.grid);
  }
  return out;
}

void ImageReader::Images::Append(const Images& later) {
  placeholders_ = later.placeholders_;
  files_.insert(files_.end(), later.files_.begin(), later.files_.end());
  found_.insert(found_.end(), later.found_.begin(), later.found_.end());
  grids_.insert(grids_.end(), later.grids_.begin(), later.grids_.end());
}

absl::StatusOr<std::vector<int32_t>> ImageReader::Images::Expand(
    absl::Span<const int32_t> ids) const {
  return images::ExpandPlaceholders(ids, placeholders_, found_, grids_);
}

absl::StatusOr<std::vector<int32_t>> ImageReader::Images::ExpandPart(absl::Span<const int32_t> ids,
                                                                     size_t* next) const {
  const auto count =
      static_cast<size_t>(std::count(ids.begin(), ids.end(), placeholders_.placeholder));
  if (count > grids_.size() - *next) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the chat template wrote more placeholders than the row has images, which are ",
        grids_.size()));
  }
  const size_t first = std::exchange(*next, *next + count);
  return images::ExpandPlaceholders(ids, placeholders_,
                                    absl::MakeSpan(found_).subspan(first, count),
                                    absl::MakeSpan(grids_).subspan(first, count));
}

}  // namespace tandem::driver
