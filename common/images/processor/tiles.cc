#include "common/images/processor/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/images/processor/canvas.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

double Of(int64_t value) { return static_cast<double>(value); }

absl::Status CheckMade(ImageSize image, ImageSize made, const PreprocessorConfig& config) {
  if (made.height >= 1 && made.width >= 1 && made.height <= kMaxProcessedPixels / made.width) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the image has ", image.width, " x ", image.height,
                                                 " pixels, of which ", config.type, " makes ",
                                                 made.width, " x ", made.height, "; expected 1 to ",
                                                 kMaxProcessedPixels, " pixels"));
}

absl::StatusOr<Image> ResizeTo(const Image& image, ImageSize size,
                               const PreprocessorConfig& config) {
  RETURN_IF_ERROR(CheckMade({image.height, image.width}, size, config));
  return Resize(image, size.height, size.width, config.filter);
}

// The shorter side becomes `edge`.
ImageSize ShortestEdgeSize(const Image& image, int64_t edge) {
  const auto [shorter, longer] = std::minmax(image.height, image.width);
  const int64_t other = static_cast<int64_t>(Of(edge * longer) / Of(shorter));
  return image.width <= image.height ? ImageSize{other, edge} : ImageSize{edge, other};
}

// Pads to a square of the mean color.
absl::StatusOr<Image> PadWithMean(const Image& image, const PreprocessorConfig& config) {
  std::array<uint8_t, 3> color;
  for (int c = 0; c < 3; ++c) {
    color[c] = static_cast<uint8_t>(std::clamp(config.image_mean[c] * 255, 0.0, 255.0));
  }
  RETURN_IF_ERROR(CheckSquare({image.height, image.width}, config));
  return PadToSquare(image, color);
}

absl::StatusOr<Tiles> ClipTiles(const Image& image, const PreprocessorConfig& config) {
  Image padded;
  const Image* from = &image;
  if (config.do_pad) {
    ASSIGN_OR_RETURN(padded, PadWithMean(image, config));
    from = &padded;
  }
  const ImageSize size =
      config.size ? *config.size : ShortestEdgeSize(*from, *config.shortest_edge);
  ASSIGN_OR_RETURN(Image resized, ResizeTo(*from, size, config));
  if (config.crop_size)
    resized = CenterCrop(resized, config.crop_size->height, config.crop_size->width);
  Tiles tiles;
  tiles.images.push_back(std::move(resized));
  return tiles;
}

absl::Status AppendGrid(const Image& image, int64_t height, int64_t width, Tiles* tiles) {
  tiles->rows = image.height / height;
  tiles->columns = image.width / width;
  if (tiles->rows * tiles->columns > kMaxTilesOfImage) {
    return absl::InvalidArgumentError(absl::StrCat("the image is cut into ", tiles->rows, " x ",
                                                   tiles->columns, " tiles; at most ",
                                                   kMaxTilesOfImage, " are made"));
  }
  for (int64_t row = 0; row < tiles->rows; ++row) {
    for (int64_t column = 0; column < tiles->columns; ++column) {
      tiles->images.push_back(Window(image, row * height, column * width, height, width, {}));
    }
  }
  return absl::OkStatus();
}

// The canvas that keeps most of the image's pixels, and of those that keep as many, the smallest.
ImageSize BestPinpoint(ImageSize image, const std::vector<ImageSize>& pinpoints) {
  ImageSize best = pinpoints[0];
  int64_t most = 0;
  int64_t least_waste = std::numeric_limits<int64_t>::max();
  for (const ImageSize& pinpoint : pinpoints) {
    const double scale =
        std::min(Of(pinpoint.width) / Of(image.width), Of(pinpoint.height) / Of(image.height));
    const int64_t scaled = static_cast<int64_t>(Of(image.width) * scale) *
                           static_cast<int64_t>(Of(image.height) * scale);
    const int64_t kept = std::min(scaled, image.width * image.height);
    const int64_t waste = pinpoint.width * pinpoint.height - kept;
    if (kept > most || (kept == most && waste < least_waste)) {
      most = kept;
      least_waste = waste;
      best = pinpoint;
    }
  }
  return best;
}

// Of an image among others.
absl::StatusOr<Tiles> OnevisionTile(const Image& image, const PreprocessorConfig& config) {
  ASSIGN_OR_RETURN(const Image padded, PadWithMean(image, config));
  Tiles tiles;
  ASSIGN_OR_RETURN(Image resized, ResizeTo(padded, *config.size, config));
  tiles.images.push_back(std::move(resized));
  return tiles;
}

absl::StatusOr<Tiles> OnevisionTiles(const Image& image, const PreprocessorConfig& config) {
  const ImageSize canvas = CanvasOf({image.height, image.width}, config);
  const double scale_width = Of(canvas.width) / Of(image.width);
  const double scale_height = Of(canvas.height) / Of(image.height);
  ImageSize inner = canvas;
  if (scale_width < scale_height) {
    inner.height =
        std::min(static_cast<int64_t>(std::ceil(Of(image.height) * scale_width)), canvas.height);
  } else {
    inner.width =
        std::min(static_cast<int64_t>(std::ceil(Of(image.width) * scale_height)), canvas.width);
  }
  Tiles tiles;
  ASSIGN_OR_RETURN(Image whole, ResizeTo(image, *config.size, config));
  tiles.images.push_back(std::move(whole));
  ASSIGN_OR_RETURN(const Image resized, ResizeTo(image, inner, config));
  const Image padded = Window(resized, -((canvas.height - inner.height) / 2),
                              -((canvas.width - inner.width) / 2), canvas.height, canvas.width, {});
  RETURN_IF_ERROR(AppendGrid(padded, config.size->height, config.size->width, &tiles));
  return tiles;
}

constexpr int64_t kMaxEdge = 4096;  // of kIdefics3

// The longer side becomes `edge`, the other an even number in proportion; then both shrink to 4096.
ImageSize LongestEdgeSize(ImageSize size, int64_t edge) {
  double ratio = Of(size.width) / Of(size.height);
  if (size.width >= size.height) {
    size.width = edge;
    size.height = static_cast<int64_t>(Of(edge) / ratio);
    size.height += size.height % 2;
  } else {
    size.height = edge;
    size.width = static_cast<int64_t>(Of(edge) * ratio);
    size.width += size.width % 2;
  }
  size = {std::max<int64_t>(size.height, 1), std::max<int64_t>(size.width, 1)};
  ratio = Of(size.width) / Of(size.height);
  if (size.width >= size.height && size.width > kMaxEdge) {
    size = {static_cast<int64_t>(Of(kMaxEdge) / ratio), kMaxEdge};
  } else if (size.height > size.width && size.height > kMaxEdge) {
    size = {kMaxEdge, static_cast<int64_t>(Of(kMaxEdge) * ratio)};
  }
  return {std::max<int64_t>(size.height, 1), std::max<int64_t>(size.width, 1)};
}

int64_t Up(int64_t side, int64_t edge) { return (side + edge - 1) / edge * edge; }

// What kIdefics3 resizes an image to, and then, where it is cut, to whole tiles.
struct Idefics3Sizes {
  ImageSize first;
  ImageSize grid;
};

Idefics3Sizes Idefics3SizesOf(ImageSize image, const PreprocessorConfig& config) {
  const int64_t edge = config.max_image_edge;
  Idefics3Sizes sizes;
  sizes.first = config.size ? *config.size : LongestEdgeSize(image, *config.longest_edge);
  // The longer side decides.
  const double ratio = Of(sizes.first.width) / Of(sizes.first.height);
  if (sizes.first.width >= sizes.first.height) {
    sizes.grid.width = Up(sizes.first.width, edge);
    sizes.grid.height = Up(static_cast<int64_t>(Of(sizes.grid.width) / ratio), edge);
  } else {
    sizes.grid.height = Up(sizes.first.height, edge);
    sizes.grid.width = Up(static_cast<int64_t>(Of(sizes.grid.height) * ratio), edge);
  }
  return sizes;
}

absl::StatusOr<Tiles> Idefics3Tiles(const Image& image, const PreprocessorConfig& config) {
  const int64_t edge = config.max_image_edge;
  const Idefics3Sizes sizes = Idefics3SizesOf({image.height, image.width}, config);
  ASSIGN_OR_RETURN(const ImageSize cut, Idefics3Cut({image.height, image.width}, config));
  ASSIGN_OR_RETURN(Image resized, ResizeTo(image, sizes.first, config));
  Tiles tiles;
  if (config.do_image_splitting) {
    ASSIGN_OR_RETURN(resized, ResizeTo(resized, sizes.grid, config));
  }
  if (cut.height > 0) RETURN_IF_ERROR(AppendGrid(resized, edge, edge, &tiles));
  if (cut.height > 0 || !config.do_image_splitting) {
    ASSIGN_OR_RETURN(resized, ResizeTo(resized, {edge, edge}, config));
  }
  tiles.images.push_back(std::move(resized));
  return tiles;
}

// The arrangement of min_patches to max_patches tiles whose shape is nearest to the image's.
void BestArrangement(ImageSize image, const PreprocessorConfig& config, int64_t* columns,
                     int64_t* rows) {
  *columns = *rows = 1;
  const double ratio = Of(image.width) / Of(image.height);
  const double area = Of(image.width * image.height);
  double nearest = std::numeric_limits<double>::infinity();
  // By the number of tiles, then by columns: ties depend on the order.
  for (int64_t tiles = config.min_patches; tiles <= config.max_patches; ++tiles) {
    for (int64_t c = 1; c <= tiles; ++c) {
      if (tiles % c != 0) continue;
      const int64_t r = tiles / c;
      const double distance = std::abs(ratio - Of(c) / Of(r));
      // Of equal shapes more tiles, up to twice the image's area.
      if (distance < nearest ||
          (distance == nearest &&
           area > 0.5 * Of(config.size->height * config.size->width * c * r))) {
        nearest = distance;
        *columns = c;
        *rows = r;
      }
    }
  }
}

absl::StatusOr<Tiles> GotOcr2Tiles(const Image& image, const PreprocessorConfig& config) {
  Tiles tiles;
  const ImageSize tile = *config.size;
  int64_t columns = 1;
  int64_t rows = 1;
  if (config.crop_to_patches) {
    BestArrangement({image.height, image.width}, config, &columns, &rows);
  }
  if (columns * rows > 1) {
    ASSIGN_OR_RETURN(const Image resized,
                     ResizeTo(image, {tile.height * rows, tile.width * columns}, config));
    RETURN_IF_ERROR(AppendGrid(resized, tile.height, tile.width, &tiles));
  }
  ASSIGN_OR_RETURN(Image whole, ResizeTo(image, tile, config));
  tiles.images.push_back(std::move(whole));
  return tiles;
}

absl::StatusOr<Tiles> PixtralTiles(const Image& image, const PreprocessorConfig& config) {
  ASSIGN_OR_RETURN(const ImageSize size, PixtralSize({image.height, image.width}, config));
  ASSIGN_OR_RETURN(Image resized, ResizeTo(image, size, config));
  Tiles tiles;
  tiles.images.push_back(std::move(resized));
  return tiles;
}

}  // namespace

absl::StatusOr<ImageSize> PixtralSize(ImageSize image, const PreprocessorConfig& config) {
  const ImageSize most =
      config.size ? *config.size : ImageSize{*config.longest_edge, *config.longest_edge};
  ImageSize size = image;
  const double ratio = std::max(Of(size.height) / Of(most.height), Of(size.width) / Of(most.width));
  if (ratio > 1) {
    size.height = static_cast<int64_t>(std::floor(Of(size.height) / ratio));
    size.width = static_cast<int64_t>(std::floor(Of(size.width) / ratio));
  }
  const auto up = [](int64_t side, int64_t patch) { return ((side - 1) / patch + 1) * patch; };
  if (size.height < 1 || size.width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the image has ", image.width, " x ",
                                                   image.height, " pixels: shrunk by ", ratio,
                                                   ", a side vanishes"));
  }
  size = {up(size.height, config.pixtral_patch.height), up(size.width, config.pixtral_patch.width)};
  RETURN_IF_ERROR(CheckMade(image, size, config));
  return size;
}

absl::Status CheckSquare(ImageSize image, const PreprocessorConfig& config) {
  const int64_t side = std::max(image.height, image.width);
  return CheckMade(image, {side, side}, config);
}

ImageSize CanvasOf(ImageSize image, const PreprocessorConfig& config) {
  return BestPinpoint(image, config.image_grid_pinpoints);
}

absl::StatusOr<Tiles> MakeTiles(const Image& image, const PreprocessorConfig& config,
                                ImageForm form) {
  switch (config.family) {
    case ProcessorFamily::kQwen2Vl:
      break;
    case ProcessorFamily::kClip:
      return ClipTiles(image, config);
    case ProcessorFamily::kGemma3: {
      ASSIGN_OR_RETURN(Image resized, ResizeTo(image, *config.size, config));
      Tiles tiles;
      tiles.images.push_back(std::move(resized));
      return tiles;
    }
    case ProcessorFamily::kLlavaOnevision:
      return form == ImageForm::kAlone ? OnevisionTiles(image, config)
                                       : OnevisionTile(image, config);
    case ProcessorFamily::kIdefics3:
      return Idefics3Tiles(image, config);
    case ProcessorFamily::kGotOcr2:
      return GotOcr2Tiles(image, config);
    case ProcessorFamily::kPixtral:
      return PixtralTiles(image, config);
  }
  return absl::InternalError("an image of Qwen's processor has patches, not tiles");
}

absl::StatusOr<ImageSize> Idefics3Cut(ImageSize image, const PreprocessorConfig& config) {
  const int64_t edge = config.max_image_edge;
  const Idefics3Sizes sizes = Idefics3SizesOf(image, config);
  RETURN_IF_ERROR(CheckMade(image, sizes.first, config));
  if (!config.do_image_splitting) return ImageSize{};
  RETURN_IF_ERROR(CheckMade(image, sizes.grid, config));
  if (sizes.grid.height <= edge && sizes.grid.width <= edge) return ImageSize{};
  return ImageSize{sizes.grid.height / edge, sizes.grid.width / edge};
}

int64_t MaxTilesOnSide(const PreprocessorConfig& config) {
  const int64_t edge = config.max_image_edge;
  if (config.size) return Up(std::max(config.size->height, config.size->width), edge) / edge;
  // The shorter side becomes even, which may be beyond the longer one.
  const int64_t longest = *config.longest_edge + *config.longest_edge % 2;
  return Up(std::min(longest, kMaxEdge), edge) / edge;
}

absl::StatusOr<int64_t> NumTiles(ImageSize image, const PreprocessorConfig& config) {
  RETURN_IF_ERROR(TileSize(config).status());
  if (config.family == ProcessorFamily::kLlavaOnevision) {
    const ImageSize canvas = CanvasOf(image, config);
    return 1 + canvas.height / config.size->height * (canvas.width / config.size->width);
  }
  if (config.family == ProcessorFamily::kIdefics3) {
    ASSIGN_OR_RETURN(const ImageSize cut, Idefics3Cut(image, config));
    return cut.height * cut.width + 1;
  }
  if (config.family != ProcessorFamily::kGotOcr2 || !config.crop_to_patches) return 1;
  int64_t columns = 1;
  int64_t rows = 1;
  BestArrangement(image, config, &columns, &rows);
  return columns * rows > 1 ? columns * rows + 1 : 1;
}

absl::StatusOr<ImageSize> TileSize(const PreprocessorConfig& config) {
  switch (config.family) {
    case ProcessorFamily::kClip:
      if (config.crop_size) return *config.crop_size;
      return *config.size;  // there is one where nothing is cropped
    case ProcessorFamily::kGemma3:
    case ProcessorFamily::kLlavaOnevision:
    case ProcessorFamily::kGotOcr2:
      return *config.size;
    case ProcessorFamily::kIdefics3:
      return ImageSize{config.max_image_edge, config.max_image_edge};
    default:
      return absl::UnimplementedError(
          absl::StrCat(config.place, ": image_processor_type: ", config.type,
                       " makes no tiles of one size; expected CLIPImageProcessor, "
                       "LlavaImageProcessor, LlavaOnevisionImageProcessor, SiglipImageProcessor, "
                       "GotOcr2ImageProcessor or Idefics3ImageProcessor"));
  }
}

}  // namespace tandem::images
