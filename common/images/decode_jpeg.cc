// jpeglib.h needs size_t and FILE, and jerror.h needs jpeglib.h.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <csetjmp>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/images/decoders.h"

namespace tandem::images {
namespace {

// libjpeg reports errors by longjmp(), which runs no destructors: the functions that call it hold
// pointers only, and everything that owns memory is outside of them.
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = &OnError;
    errors_.base.emit_message = &OnMessage;
    errors_.base.output_message = &OnOutput;
  }
  // Frees what was allocated; harmless before Start().
  ~JpegReader() {
    if (info_.mem != nullptr) jpeg_destroy_decompress(&info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const char* error() const { return errors_.text; }
  int64_t row() const { return info_.output_scanline; }
  int64_t width() const { return info_.output_width; }
  int64_t height() const { return info_.output_height; }
  int num_colors() const { return info_.output_components; }

  // Each returns false on an error.
  bool Start(const unsigned char* bytes, size_t size) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, bytes, size);
    jpeg_read_header(&info_, TRUE);
    // As Pillow: libjpeg's guess what the components are stays, its other defaults too.
    switch (info_.num_components) {
      case 1:
        info_.out_color_space = JCS_GRAYSCALE;
        break;
      case 3:
        info_.out_color_space = JCS_RGB;
        break;
      default:
        info_.out_color_space = JCS_CMYK;
        break;
    }
    jpeg_start_decompress(&info_);
    return true;
  }
  bool ReadRow(unsigned char* row) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }
  bool Finish() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  struct Errors {
    jpeg_error_mgr base;  // first: libjpeg hands out a pointer to it
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
  };

  [[noreturn]] static void OnError(j_common_ptr info) {
    auto* errors = reinterpret_cast<Errors*>(info->err);
    info->err->format_message(info, errors->text);
    std::longjmp(errors->jump, 1);
  }
  // A warning is of data that libjpeg replaced by a guess. Those that do not touch pixels pass.
  static void OnMessage(j_common_ptr info, int level) {
    if (level >= 0) return;  // a trace
    switch (info->err->msg_code) {
      case JWRN_EXTRANEOUS_DATA:
      case JWRN_JFIF_MAJOR:
      case JWRN_ADOBE_XFORM:
        return;
      default:
        OnError(info);
    }
  }
  static void OnOutput(j_common_ptr) {}

  jpeg_decompress_struct info_ = {};
  Errors errors_ = {};
};

// Pillow's rounding of a * b / 255.
int MultiplyDivide255(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// The samples are inverted, as Adobe writes them and Pillow always takes them.
void ConvertCmyk(const unsigned char* row, int64_t width, uint8_t* to) {
  for (int64_t x = 0; x < width; ++x, row += 4, to += 3) {
    const int light = row[3];  // 255 - black
    for (int c = 0; c < 3; ++c) {
      const int color = light - MultiplyDivide255(255 - row[c], light);
      to[c] = static_cast<uint8_t>(color < 0 ? 0 : color);
    }
  }
}

}  // namespace

absl::StatusOr<Image> DecodeJpeg(absl::string_view bytes, const ImageHeader& header) {
  JpegReader reader;
  if (!reader.Start(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    return absl::InvalidArgumentError(reader.error());
  }
  if (reader.width() != header.width || reader.height() != header.height) {
    return absl::InvalidArgumentError(absl::StrCat("the frame says ", header.width, " x ",
                                                   header.height, " pixels, libjpeg finds ",
                                                   reader.width(), " x ", reader.height()));
  }
  Image image;
  image.height = header.height;
  image.width = header.width;
  image.rgb.resize(3 * image.height * image.width);
  const int num_colors = reader.num_colors();
  std::vector<unsigned char> samples(num_colors * image.width);
  for (int64_t y = 0; y < image.height; ++y) {
    uint8_t* to = &image.rgb[3 * y * image.width];
    if (!reader.ReadRow(num_colors == 3 ? to : samples.data())) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", reader.row(), " of ", image.height, ": ", reader.error()));
    }
    if (num_colors == 4) {
      ConvertCmyk(samples.data(), image.width, to);
    } else if (num_colors == 1) {
      for (int64_t x = 0; x < image.width; ++x) std::memset(to + 3 * x, samples[x], 3);
    }
  }
  if (!reader.Finish()) {
    return absl::InvalidArgumentError(absl::StrCat("after the last row: ", reader.error()));
  }
  return image;
}

}  // namespace tandem::images
