#include "common/images/processor/preprocessor_config.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/images/processor/processor_classes.h"
#include "common/images/processor/tiles.h"
#include "common/io/json_fields.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSide = 65'535;

absl::StatusOr<int64_t> Positive(const io::JsonFields& fields, const std::string& key,
                                 int64_t most) {
  ASSIGN_OR_RETURN(const int64_t value, fields.Int(key));
  if (value < 1 || value > most) {
    return fields.Error(key, absl::StrCat("expected 1 to ", most, ", found ", value));
  }
  return value;
}

absl::Status CheckArea(const io::JsonFields& fields, const std::string& key, ImageSize size) {
  if (size.height * size.width <= kMaxProcessedPixels) return absl::OkStatus();
  return fields.Error(
      key, absl::StrCat(size.height, " x ", size.width, " pixels are above ", kMaxProcessedPixels));
}

absl::StatusOr<ImageSize> HeightAndWidth(const io::JsonFields& fields) {
  ImageSize size;
  ASSIGN_OR_RETURN(size.height, Positive(fields, "height", kMaxSide));
  ASSIGN_OR_RETURN(size.width, Positive(fields, "width", kMaxSide));
  RETURN_IF_ERROR(CheckArea(fields, "width", size));
  return size;
}

// A size that is an object with both sides, or a number for both.
absl::StatusOr<ImageSize> SquareOrSides(const io::JsonFields& fields, const std::string& key) {
  if (fields.Has(key) && fields.json()[key].is_number()) {
    ASSIGN_OR_RETURN(const int64_t side, Positive(fields, key, kMaxSide));
    RETURN_IF_ERROR(CheckArea(fields, key, {side, side}));
    return ImageSize{side, side};
  }
  ASSIGN_OR_RETURN(const io::JsonFields sides, fields.Object(key));
  return HeightAndWidth(sides);
}

absl::Status ReadSize(const io::JsonFields& fields, bool number_is_shortest_edge,
                      PreprocessorConfig* config) {
  const int64_t most = config->family == ProcessorFamily::kQwen2Vl ? kMaxProcessedPixels : kMaxSide;
  if (fields.json()["size"].is_number()) {
    if (number_is_shortest_edge) {
      ASSIGN_OR_RETURN(config->shortest_edge, Positive(fields, "size", most));
    } else {
      ASSIGN_OR_RETURN(config->size, SquareOrSides(fields, "size"));
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const io::JsonFields size, fields.Object("size"));
  if (size.Has("shortest_edge")) {
    ASSIGN_OR_RETURN(config->shortest_edge, Positive(size, "shortest_edge", most));
  }
  if (size.Has("longest_edge")) {
    ASSIGN_OR_RETURN(config->longest_edge, Positive(size, "longest_edge", most));
  }
  if (size.Has("height") || size.Has("width")) {
    ASSIGN_OR_RETURN(config->size, HeightAndWidth(size));
  }
  return absl::OkStatus();
}

// Older files of Qwen have the numbers of pixels beside "size", which they override.
absl::Status ReadPixels(const io::JsonFields& fields, PreprocessorConfig* config) {
  if (fields.Has("min_pixels")) {
    ASSIGN_OR_RETURN(config->shortest_edge, Positive(fields, "min_pixels", kMaxProcessedPixels));
  }
  if (fields.Has("max_pixels")) {
    ASSIGN_OR_RETURN(config->longest_edge, Positive(fields, "max_pixels", kMaxProcessedPixels));
  }
  if (config->do_resize && !(config->shortest_edge && config->longest_edge)) {
    return fields.Error("size",
                        "expected shortest_edge and longest_edge, the least and the most pixels");
  }
  if (config->do_resize && *config->shortest_edge > *config->longest_edge) {
    return fields.Error("size", absl::StrCat("at least ", *config->shortest_edge,
                                             " pixels, but at most ", *config->longest_edge));
  }
  // Several times what models have; an image is at least patch_size * merge_size wide and high.
  ASSIGN_OR_RETURN(config->patch_size, Positive(fields, "patch_size", 256));
  ASSIGN_OR_RETURN(config->temporal_patch_size, Positive(fields, "temporal_patch_size", 16));
  ASSIGN_OR_RETURN(config->merge_size, Positive(fields, "merge_size", 16));
  return absl::OkStatus();
}

absl::Status ReadPinpoints(const io::JsonFields& fields, PreprocessorConfig* config) {
  const std::string key = "image_grid_pinpoints";
  const json& list = fields.json()[key];
  if (!list.is_array() || list.empty()) {
    return fields.Error(
        key, absl::StrCat("expected a list of [height, width], found ", io::Describe(list)));
  }
  for (const json& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned() || pair[0] < 1 || pair[0] > kMaxSide || pair[1] < 1 ||
        pair[1] > kMaxSide) {
      return fields.Error(key, absl::StrCat("expected [height, width] of 1 to ", kMaxSide));
    }
    const ImageSize canvas = {pair[0].get<int64_t>(), pair[1].get<int64_t>()};
    RETURN_IF_ERROR(CheckArea(fields, key, canvas));
    if (canvas.height / config->size->height * (canvas.width / config->size->width) >
        kMaxTilesOfImage) {
      return fields.Error(key, absl::StrCat("[", canvas.height, ", ", canvas.width,
                                            "] has more than ", kMaxTilesOfImage, " tiles of ",
                                            config->size->height, " x ", config->size->width));
    }
    if (canvas.height % config->size->height != 0 || canvas.width % config->size->width != 0) {
      return absl::UnimplementedError(
          absl::StrCat(fields.place(), ": ", key, ": [", canvas.height, ", ", canvas.width,
                       "] is not a whole number of tiles of ", config->size->height, " x ",
                       config->size->width));
    }
    config->image_grid_pinpoints.push_back(canvas);
  }
  return absl::OkStatus();
}

// "size" of the families that want one form of it.
absl::Status CheckSizeForm(const io::JsonFields& fields, const PreprocessorConfig& config) {
  if (!config.do_resize) return absl::OkStatus();
  const bool sides = config.size.has_value();
  const bool shortest = config.shortest_edge && !config.longest_edge;
  const bool longest = config.longest_edge && !config.shortest_edge;
  switch (config.family) {
    case ProcessorFamily::kQwen2Vl:
      return absl::OkStatus();
    case ProcessorFamily::kClip:
      if (sides != shortest) return absl::OkStatus();
      return fields.Error("size", "expected either height and width, or shortest_edge alone");
    case ProcessorFamily::kIdefics3:
    case ProcessorFamily::kPixtral:
      if (sides != longest) return absl::OkStatus();
      return fields.Error("size", "expected either height and width, or longest_edge alone");
    case ProcessorFamily::kGemma3:
    case ProcessorFamily::kLlavaOnevision:
    case ProcessorFamily::kGotOcr2:
      if (sides && !config.shortest_edge && !config.longest_edge) return absl::OkStatus();
      return fields.Error("size", "expected height and width");
  }
  return absl::OkStatus();
}

// The class of the processor that calls the image processor; either file may name it.
std::string ProcessorClassOf(const json& object, const json& processor) {
  for (const json* file : {&processor, &object}) {
    const auto found = file->find("processor_class");
    if (found != file->end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

// Only a processor_config.json may name other tokens than Pixtral's.
absl::Status ReadPixtralTexts(const io::JsonFields& processor, PlaceholderTexts& texts) {
  ASSIGN_OR_RETURN(texts.placeholder, processor.StringOr("image_token", "[IMG]"));
  ASSIGN_OR_RETURN(texts.line_break, processor.StringOr("image_break_token", "[IMG_BREAK]"));
  ASSIGN_OR_RETURN(texts.end, processor.StringOr("image_end_token", "[IMG_END]"));
  return absl::OkStatus();
}

// By which LLaVA-OneVision's processor counts placeholders.
absl::Status ReadCounts(const io::JsonFields& processor, PreprocessorConfig* config) {
  const auto has = [&](const char* key) {
    return processor.Has(key) && !processor.json()[key].is_null();
  };
  if (has("num_image_tokens")) {
    ASSIGN_OR_RETURN(config->num_image_tokens,
                     Positive(processor, "num_image_tokens", kMaxProcessedPixels));
  }
  if (has("vision_aspect_ratio")) {
    ASSIGN_OR_RETURN(config->vision_aspect_ratio, processor.String("vision_aspect_ratio"));
  }
  return absl::OkStatus();
}

// The texts of the tiles that kIdefics3 cuts images into.
absl::Status ReadTileTexts(const io::JsonFields& fields, PreprocessorConfig* config) {
  TileTexts& texts = config->placeholders.tiles.emplace(TileTexts{.whole = "<global-img>"});
  if (!config->do_image_splitting) return absl::OkStatus();
  texts.max_side = MaxTilesOnSide(*config);
  if (texts.max_side <= kMaxTilesOnSide) return absl::OkStatus();
  return fields.Error(
      "max_image_size",
      absl::StrCat("longest_edge ", config->max_image_edge, " cuts images of \"size\" into up to ",
                   texts.max_side, " tiles on a side; expected at most ", kMaxTilesOnSide));
}

absl::Status ReadFamily(const io::JsonFields& fields, const io::JsonFields& processor,
                        PreprocessorConfig* config) {
  const std::string processor_class = ProcessorClassOf(fields.json(), processor.json());
  switch (config->family) {
    case ProcessorFamily::kQwen2Vl:
      config->placeholders.placeholder = "<|image_pad|>";
      return ReadPixels(fields, config);
    case ProcessorFamily::kClip: {
      ASSIGN_OR_RETURN(config->do_pad, fields.BoolOr("do_pad", false));
      if (config->do_pad && config->type.rfind("Llava", 0) != 0) {
        return absl::UnimplementedError(absl::StrCat(
            fields.place(), ": do_pad: is built for LlavaImageProcessor, not for ", config->type));
      }
      ASSIGN_OR_RETURN(const bool crop, fields.BoolOr("do_center_crop", false));
      if (crop) {
        ASSIGN_OR_RETURN(config->crop_size, SquareOrSides(fields, "crop_size"));
      } else if (!config->size) {
        return absl::UnimplementedError(
            absl::StrCat(fields.place(),
                         ": do_center_crop: is false, and size fixes one side only, so that images "
                         "would differ in size"));
      }
      return absl::OkStatus();
    }
    case ProcessorFamily::kGemma3: {
      ASSIGN_OR_RETURN(const bool pan_and_scan, fields.BoolOr("do_pan_and_scan", false));
      if (!pan_and_scan) return absl::OkStatus();
      return absl::UnimplementedError(
          absl::StrCat(fields.place(), ": do_pan_and_scan: is not built; set it to false"));
    }
    case ProcessorFamily::kLlavaOnevision: {
      ASSIGN_OR_RETURN(const bool crop, fields.BoolOr("do_center_crop", false));
      if (crop) {
        return absl::UnimplementedError(
            absl::StrCat(fields.place(), ": do_center_crop: is not built for ", config->type));
      }
      if (fields.Has("crop_size")) {
        ASSIGN_OR_RETURN(const ImageSize crop, SquareOrSides(fields, "crop_size"));
        if (crop != config->size) {
          return absl::UnimplementedError(
              absl::StrCat(fields.place(), ": crop_size: is built where it equals size only"));
        }
      }
      if (config->size && config->size->height != config->size->width) {
        return absl::UnimplementedError(absl::StrCat(
            fields.place(), ": size: tiles are built as squares, height equal to width"));
      }
      if (processor_class == "LlavaOnevisionProcessor") {
        RETURN_IF_ERROR(ReadCounts(processor, config));
      }
      return ReadPinpoints(fields, config);
    }
    case ProcessorFamily::kIdefics3: {
      ASSIGN_OR_RETURN(config->do_image_splitting, fields.Bool("do_image_splitting"));
      ASSIGN_OR_RETURN(const io::JsonFields tile, fields.Object("max_image_size"));
      ASSIGN_OR_RETURN(config->max_image_edge, Positive(tile, "longest_edge", kMaxSide));
      RETURN_IF_ERROR(ReadTileTexts(fields, config));
      if (!processor.Has("image_seq_len")) return absl::OkStatus();
      ASSIGN_OR_RETURN(config->image_seq_len,
                       Positive(processor, "image_seq_len", kMaxProcessedPixels));
      return absl::OkStatus();
    }
    case ProcessorFamily::kGotOcr2: {
      constexpr int64_t kMaxTiles = 256;
      ASSIGN_OR_RETURN(config->crop_to_patches, fields.Bool("crop_to_patches"));
      // InternVL's processor overrides what the file has.
      if (processor_class == "InternVLProcessor") config->crop_to_patches = true;
      ASSIGN_OR_RETURN(config->min_patches, Positive(fields, "min_patches", kMaxTiles));
      ASSIGN_OR_RETURN(config->max_patches, Positive(fields, "max_patches", kMaxTiles));
      if (config->min_patches > config->max_patches) {
        return fields.Error(
            "min_patches",
            absl::StrCat("is ", config->min_patches, ", above max_patches, ", config->max_patches));
      }
      return absl::OkStatus();
    }
    case ProcessorFamily::kPixtral: {
      ASSIGN_OR_RETURN(config->pixtral_patch, SquareOrSides(fields, "patch_size"));
      RETURN_IF_ERROR(ReadPixtralTexts(processor, config->placeholders));
      if (processor_class != "PixtralProcessor") return absl::OkStatus();
      // It passes what its own entries say, whatever those of the image processor are.
      constexpr int64_t kMaxPatch = 256;
      int64_t patch = 16;
      int64_t merge = 1;
      if (processor.Has("patch_size")) {
        ASSIGN_OR_RETURN(patch, Positive(processor, "patch_size", kMaxPatch));
      }
      if (processor.Has("spatial_merge_size")) {
        ASSIGN_OR_RETURN(merge, Positive(processor, "spatial_merge_size", kMaxPatch));
      }
      config->pixtral_patch = {patch * merge, patch * merge};
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFilter(const io::JsonFields& fields, PreprocessorConfig* config) {
  ASSIGN_OR_RETURN(const int64_t resample, fields.Int("resample"));
  switch (resample) {
    case 1:  // Lanczos, for which transformers takes bicubic with torchvision before 0.27
    case 3:
      config->filter = Filter::kBicubic;
      return absl::OkStatus();
    case 2:
      config->filter = Filter::kBilinear;
      return absl::OkStatus();
    default:
      return fields.Error(
          "resample",
          absl::StrCat("expected 1 (Lanczos, as bicubic), 2 (bilinear) or 3 (bicubic), found ",
                       resample));
  }
}

absl::StatusOr<std::array<double, 3>> Colors(const io::JsonFields& fields, const std::string& key) {
  ASSIGN_OR_RETURN(const std::vector<double> values, fields.DoubleList(key));
  if (values.size() != 3) {
    return fields.Error(key,
                        absl::StrCat("expected 3 numbers, one a color, found ", values.size()));
  }
  return std::array<double, 3>{values[0], values[1], values[2]};
}

absl::Status ReadScale(const io::JsonFields& fields, PreprocessorConfig* config) {
  ASSIGN_OR_RETURN(config->do_rescale, fields.BoolOr("do_rescale", true));
  ASSIGN_OR_RETURN(config->do_normalize, fields.BoolOr("do_normalize", true));
  if (!config->do_rescale && !config->do_normalize) {
    return absl::UnimplementedError(absl::StrCat(
        fields.place(),
        ": do_rescale and do_normalize: both are false, so that a model would get bytes"));
  }
  ASSIGN_OR_RETURN(config->rescale_factor, fields.DoubleOr("rescale_factor", 1.0 / 255));
  if (!(config->rescale_factor > 0)) {
    return fields.Error("rescale_factor", "expected a number above 0");
  }
  ASSIGN_OR_RETURN(config->image_mean, Colors(fields, "image_mean"));
  ASSIGN_OR_RETURN(config->image_std, Colors(fields, "image_std"));
  for (const double deviation : config->image_std) {
    if (!(deviation > 0)) return fields.Error("image_std", "expected numbers above 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreprocessorConfig> ParsePreprocessorConfig(const json& object,
                                                           const json& processor,
                                                           const std::string& place) {
  PreprocessorConfig config;
  config.place = place;
  ASSIGN_OR_RETURN(config.type, io::JsonFields(object, place).String("image_processor_type"));
  absl::StatusOr<ProcessorClass> found = FindProcessorClass(config.type);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat(place, ": image_processor_type: ", found.status().message()));
  }
  config.family = found->family;
  // A value that is null counts as absent, as in transformers.
  json merged = std::move(found->defaults);
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null()) merged[key] = value;
  }
  const io::JsonFields fields(merged, place);
  ASSIGN_OR_RETURN(config.do_resize, fields.BoolOr("do_resize", true));
  if (!config.do_resize && config.family != ProcessorFamily::kQwen2Vl) {
    return absl::UnimplementedError(
        absl::StrCat(place, ": do_resize: false is not built for ", config.type));
  }
  RETURN_IF_ERROR(ReadFilter(fields, &config));
  RETURN_IF_ERROR(ReadSize(fields, found->size_is_shortest_edge, &config));
  RETURN_IF_ERROR(ReadScale(fields, &config));
  RETURN_IF_ERROR(CheckSizeForm(fields, config));
  RETURN_IF_ERROR(ReadFamily(fields, io::JsonFields(processor, place), &config));
  return config;
}

absl::StatusOr<PreprocessorConfig> ReadPreprocessorConfig(const std::string& folder) {
  const std::string combined = folder + "/processor_config.json";
  const std::string alone = folder + "/preprocessor_config.json";
  json processor = json::object();
  std::error_code error;
  if (std::filesystem::exists(combined, error)) {
    ASSIGN_OR_RETURN(processor, io::ReadJsonFile(combined));
    const auto nested = processor.find("image_processor");
    if (nested != processor.end()) {
      const std::string place = combined + ": image_processor";
      if (!nested->is_object()) {
        return absl::InvalidArgumentError(
            absl::StrCat(place, ": expected an object, found ", io::Describe(*nested)));
      }
      return ParsePreprocessorConfig(*nested, processor, place);
    }
  }
  if (!std::filesystem::exists(alone, error)) {
    return absl::NotFoundError(absl::StrCat(
        folder,
        ": no preprocessor_config.json, and no processor_config.json with image_processor: "
        "the folder does not say how its model sees images"));
  }
  ASSIGN_OR_RETURN(const json object, io::ReadJsonFile(alone));
  return ParsePreprocessorConfig(object, processor, alone);
}

}  // namespace tandem::images
