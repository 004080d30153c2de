// A picture out of a PNG file: 8 bits a channel, RGB or RGBA, not interlaced, as browsers write it.
#ifndef TANDEM_TESTS_SUPPORT_PNG_IMAGE_H_
#define TANDEM_TESTS_SUPPORT_PNG_IMAGE_H_

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/support/program.h"

namespace tandem::testing {

struct Pixel {
  int red = 0;
  int green = 0;
  int blue = 0;
};

class PngImage {
 public:
  int width() const { return width_; }
  int height() const { return height_; }
  Pixel at(int x, int y) const {
    const uint8_t* const p = &bytes_[(static_cast<size_t>(y) * width_ + x) * channels_];
    return {p[0], p[1], p[2]};
  }

  // Colours of a part of the picture, each channel told apart in steps of 8.
  std::set<int> ColoursIn(int left, int top, int right, int bottom) const {
    std::set<int> colours;
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) {
        const Pixel p = at(x, y);
        colours.insert((p.red / 8) << 10 | (p.green / 8) << 5 | p.blue / 8);
      }
    }
    return colours;
  }

  static absl::StatusOr<PngImage> Read(const std::string& path) {
    const std::string file = ReadWhole(path);
    const auto bad = [&path](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
    };
    if (file.compare(0, 8, "\x89PNG\r\n\x1a\n") != 0) return bad("no PNG file");
    const auto number = [&file](size_t at) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(file[at + i]);
      return value;
    };
    PngImage out;
    std::string packed;
    for (size_t at = 8; at + 12 <= file.size();) {
      const size_t size = number(at);
      const std::string kind = file.substr(at + 4, 4);
      if (at + 12 + size > file.size()) return bad("a chunk is cut off");
      if (kind == "IHDR") {
        out.width_ = static_cast<int>(number(at + 8));
        out.height_ = static_cast<int>(number(at + 12));
        const int colour_type = file[at + 17];
        if (file[at + 16] != 8 || (colour_type != 2 && colour_type != 6) || file[at + 20] != 0) {
          return bad("expected 8 bits of RGB or RGBA, not interlaced");
        }
        out.channels_ = colour_type == 6 ? 4 : 3;
      } else if (kind == "IDAT") {
        packed.append(file, at + 8, size);
      }
      at += 12 + size;
    }
    const size_t row = static_cast<size_t>(out.width_) * out.channels_;
    std::vector<uint8_t> raw((row + 1) * out.height_);
    uLongf size = raw.size();
    if (uncompress(raw.data(), &size, reinterpret_cast<const Bytef*>(packed.data()),
                   packed.size()) != Z_OK ||
        size != raw.size()) {
      return bad("its data is damaged");
    }
    out.bytes_.resize(row * out.height_);
    for (int y = 0; y < out.height_; ++y) {
      out.Unfilter(&raw[(row + 1) * y], row, y);
    }
    return out;
  }

 private:
  void Unfilter(const uint8_t* line, size_t row, int y) {
    const int filter = line[0];
    uint8_t* const to = &bytes_[row * y];
    const uint8_t* const above = y > 0 ? to - row : nullptr;
    for (size_t i = 0; i < row; ++i) {
      const bool has_left = i >= static_cast<size_t>(channels_);
      const int a = has_left ? to[i - channels_] : 0;
      const int b = above != nullptr ? above[i] : 0;
      const int c = has_left && above != nullptr ? above[i - channels_] : 0;
      int guess = 0;
      if (filter == 1) guess = a;
      if (filter == 2) guess = b;
      if (filter == 3) guess = (a + b) / 2;
      if (filter == 4) {
        const int p = a + b - c;
        const int pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
        guess = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      }
      to[i] = static_cast<uint8_t>(line[i + 1] + guess);
    }
  }

  int width_ = 0;
  int height_ = 0;
  int channels_ = 3;
  std::vector<uint8_t> bytes_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_PNG_IMAGE_H_
