#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/images/decoders.h"
#include "common/images/over_white.h"

namespace tandem::images {
namespace {

// libpng reports errors by longjmp(), which runs no destructors: the functions that call it hold
// pointers only, and everything that owns memory is here, outside of them.
class PngReader {
 public:
  explicit PngReader(absl::string_view bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool created() const { return info_ != nullptr; }
  png_structp png() { return png_; }
  png_infop info() { return info_; }
  const char* error() const { return error_; }

  // Each returns false on an error.
  bool ReadInfo(const ImageHeader& header) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &OnRead);
    png_set_user_limits(png_, static_cast<png_uint_32>(header.width),
                        static_cast<png_uint_32>(header.height));
    // Profiles and texts would be inflated for nothing.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    png_set_packing(png_);  // samples of less than 8 bits, a byte each
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool ReadRow(uint8_t* row) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }
  bool ReadRows(uint8_t** rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }
  bool ReadEnd() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  static void OnRead(png_structp png, png_bytep to, size_t size) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->rest_.size()) png_error(png, "the file is truncated");
    std::memcpy(to, reader->rest_.data(), size);
    reader->rest_.remove_prefix(size);
  }
  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(reader->error_, message, sizeof(reader->error_) - 1);
    png_longjmp(png, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}

  absl::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char error_[160] = {};
};

// Converts rows of samples to RGB over white.
class RowConverter {
 public:
  RowConverter(png_structp png, png_infop info)
      : width_(png_get_image_width(png, info)),
        type_(png_get_color_type(png, info)),
        bits_(png_get_bit_depth(png, info)) {}

  // Reads the palette and the transparent color. `stored_bits`: of a sample in the file, whose range a
  // row keeps in 8 bits or more.
  absl::Status Start(png_structp png, png_infop info, int stored_bits) {
    scale_ = stored_bits < 8 ? 255 / ((1 << stored_bits) - 1) : 1;
    png_bytep alphas = nullptr;
    int num_alphas = 0;
    png_color_16p key = nullptr;
    png_get_tRNS(png, info, &alphas, &num_alphas, &key);
    if (type_ == PNG_COLOR_TYPE_PALETTE) {
      png_colorp colors = nullptr;
      if (png_get_PLTE(png, info, &colors, &num_colors_) == 0) {
        return absl::InvalidArgumentError("no palette, which the color type needs");
      }
      for (int i = 0; i < num_colors_; ++i) {
        const uint32_t alpha = i < num_alphas ? alphas[i] : 255;
        palette_[3 * i] = OverWhite(colors[i].red, alpha);
        palette_[3 * i + 1] = OverWhite(colors[i].green, alpha);
        palette_[3 * i + 2] = OverWhite(colors[i].blue, alpha);
      }
    } else if (key != nullptr && type_ == PNG_COLOR_TYPE_GRAY) {
      key_ = {{key->gray, key->gray, key->gray}};
    } else if (key != nullptr && type_ == PNG_COLOR_TYPE_RGB) {
      key_ = {{key->red, key->green, key->blue}};
    }
    return absl::OkStatus();
  }

  // Writes width * 3 bytes.
  absl::Status Convert(const uint8_t* row, uint8_t* to) const {
    switch (type_) {
      case PNG_COLOR_TYPE_PALETTE:
        return ConvertPalette(row, to);
      case PNG_COLOR_TYPE_GRAY:
        Loop<1, false>(row, to);
        break;
      case PNG_COLOR_TYPE_GRAY_ALPHA:
        Loop<1, true>(row, to);
        break;
      case PNG_COLOR_TYPE_RGB:
        Loop<3, false>(row, to);
        break;
      default:
        Loop<3, true>(row, to);
        break;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ConvertPalette(const uint8_t* row, uint8_t* to) const {
    for (int64_t x = 0; x < width_; ++x, to += 3) {
      if (row[x] >= num_colors_) {
        return absl::InvalidArgumentError(
            absl::StrCat("column ", x, " has color ", row[x], " of a palette of ", num_colors_));
      }
      std::memcpy(to, &palette_[3 * row[x]], 3);
    }
    return absl::OkStatus();
  }

  template <int kColors, bool kAlpha>
  void Loop(const uint8_t* row, uint8_t* to) const {
    constexpr int kSamples = kColors + (kAlpha ? 1 : 0);
    const bool wide = bits_ == 16;
    for (int64_t x = 0; x < width_; ++x, to += 3) {
      uint32_t sample[kSamples];
      for (uint32_t& value : sample) {
        value = wide ? uint32_t{row[0]} << 8 | row[1] : row[0];
        row += wide ? 2 : 1;
      }
      uint32_t alpha = 255;
      if constexpr (kAlpha) {
        alpha = wide ? sample[kColors] >> 8 : sample[kColors];
      } else if (key_ && std::equal(sample, sample + kColors, key_->begin())) {
        alpha = 0;
      }
      for (int c = 0; c < 3; ++c) {
        uint32_t color = sample[kColors == 1 ? 0 : c];
        if (!wide) {
          color *= scale_;
        } else if (kSamples == 1) {
          color = std::min(color, 255u);  // Pillow's conversion of its mode I;16
        } else {
          color >>= 8;
        }
        to[c] = OverWhite(color, alpha);
      }
    }
  }

  const int64_t width_;
  const int type_;
  const int bits_;  // of a sample in a row: 8 or 16
  uint32_t scale_ = 1;
  int num_colors_ = 0;
  uint8_t palette_[3 * 256] = {};
  std::optional<std::array<uint32_t, 3>> key_;  // the transparent color
};

}  // namespace

absl::StatusOr<Image> DecodePng(absl::string_view bytes, const ImageHeader& header) {
  PngReader reader(bytes);
  if (!reader.created())
    return absl::InternalError("libpng cannot start: it is of another version");
  if (!reader.ReadInfo(header)) return absl::InvalidArgumentError(reader.error());
  png_structp png = reader.png();
  png_infop info = reader.info();
  const int stored_bits = static_cast<unsigned char>(bytes[24]);  // of IHDR, which begins the file
  RowConverter converter(png, info);
  if (absl::Status status = converter.Start(png, info, stored_bits); !status.ok()) return status;

  Image image;
  image.height = header.height;
  image.width = header.width;
  image.rgb.resize(3 * image.height * image.width);
  const auto at_row = [&](int64_t y, absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat("row ", y, " of ", image.height, ": ", problem));
  };
  const size_t row_bytes = png_get_rowbytes(png, info);
  // Rows of an interlaced file are complete after its last pass only.
  const bool interlaced = png_get_interlace_type(png, info) != PNG_INTERLACE_NONE;
  std::vector<uint8_t> samples(row_bytes * (interlaced ? image.height : 1));
  if (interlaced) {
    std::vector<uint8_t*> rows(image.height);
    for (int64_t y = 0; y < image.height; ++y) rows[y] = &samples[y * row_bytes];
    if (!reader.ReadRows(rows.data())) {
      return absl::InvalidArgumentError(absl::StrCat("interlaced rows: ", reader.error()));
    }
  }
  for (int64_t y = 0; y < image.height; ++y) {
    if (!interlaced && !reader.ReadRow(samples.data())) return at_row(y, reader.error());
    const uint8_t* row = interlaced ? &samples[y * row_bytes] : samples.data();
    if (absl::Status status = converter.Convert(row, &image.rgb[3 * y * image.width]);
        !status.ok()) {
      return at_row(y, status.message());
    }
  }
  if (!reader.ReadEnd())
    return absl::InvalidArgumentError(absl::StrCat("after the last row: ", reader.error()));
  return image;
}

}  // namespace tandem::images
