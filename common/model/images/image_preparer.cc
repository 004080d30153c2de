#include "common/model/images/image_preparer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/images/decode.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckEqual(const images::PreprocessorConfig& config, const char* key, int64_t found,
                        int64_t expected) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(config.place, ": ", key, ": expected ", expected,
                   ", as vision_config of config.json says, found ", found,
                   "; take the preprocessor_config.json that belongs to this model"));
}

}  // namespace

absl::StatusOr<ImagePreparer> ImagePreparer::Load(const std::string& folder,
                                                  const VisionSpec& spec) {
  ASSIGN_OR_RETURN(images::ImageProcessor processor, images::ImageProcessor::Load(folder));
  const images::PreprocessorConfig& config = processor.config();
  if (config.family != images::ProcessorFamily::kQwen2Vl) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.place, ": image_processor_type: expected Qwen2VLImageProcessor for the ",
        "model's vision tower, found ", config.type));
  }
  RETURN_IF_ERROR(CheckEqual(config, "patch_size", config.patch_size, spec.patch_size));
  RETURN_IF_ERROR(CheckEqual(config, "temporal_patch_size", config.temporal_patch_size,
                             spec.temporal_patch_size));
  RETURN_IF_ERROR(CheckEqual(config, "merge_size", config.merge_size, spec.merge_size));
  return ImagePreparer(std::move(processor));
}

absl::StatusOr<PreparedImage> ImagePreparer::Prepare(absl::string_view file,
                                                     const std::string& place,
                                                     const images::ImageLimits& limits) const {
  ASSIGN_OR_RETURN(const images::Image image, images::DecodeImage(file, place, limits));
  absl::StatusOr<images::ProcessedImage> processed = processor_.Process(image);
  if (!processed.ok()) return io::AtPlace(place, processed.status());
  return PreparedImage{{processed->grid[1], processed->grid[2]},
                       std::move(processed->pixel_values)};
}

}  // namespace tandem::model
