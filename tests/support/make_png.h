// Writes PNG files of 8 bits a color, RGB.
#ifndef TANDEM_TESTS_SUPPORT_MAKE_PNG_H_
#define TANDEM_TESTS_SUPPORT_MAKE_PNG_H_

#include <zlib.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace tandem::testing {

inline std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// A PNG's chunk: length, type, data, checksum.
inline std::string PngChunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const uLong sum =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian(static_cast<uint32_t>(data.size())) + body +
         BigEndian(static_cast<uint32_t>(sum));
}

// `color`: of column x and row y.
inline std::string MakePng(int width, int height,
                           const std::function<std::array<uint8_t, 3>(int x, int y)>& color) {
  std::string rows;
  for (int y = 0; y < height; ++y) {
    rows.push_back('\0');  // not filtered
    for (int x = 0; x < width; ++x) {
      for (const uint8_t part : color(x, y)) rows.push_back(static_cast<char>(part));
    }
  }
  uLongf size = compressBound(static_cast<uLong>(rows.size()));
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(rows.data()), static_cast<uLong>(rows.size()));
  packed.resize(size);
  const std::string header = BigEndian(static_cast<uint32_t>(width)) +
                             BigEndian(static_cast<uint32_t>(height)) +
                             std::string("\x08\x02\0\0\0", 5);
  return std::string("\x89PNG\r\n\x1a\n", 8) + PngChunk("IHDR", header) + PngChunk("IDAT", packed) +
         PngChunk("IEND", "");
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_MAKE_PNG_H_
