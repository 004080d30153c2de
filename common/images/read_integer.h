// Reads integers of either byte order from bytes; the caller has checked that they are there.
#ifndef TANDEM_COMMON_IMAGES_READ_INTEGER_H_
#define TANDEM_COMMON_IMAGES_READ_INTEGER_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace tandem::images {

inline uint32_t ByteAt(absl::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}
inline uint32_t BigEndian16(absl::string_view bytes, size_t at) {
  return ByteAt(bytes, at) << 8 | ByteAt(bytes, at + 1);
}
inline uint32_t BigEndian32(absl::string_view bytes, size_t at) {
  return BigEndian16(bytes, at) << 16 | BigEndian16(bytes, at + 2);
}
inline uint32_t LittleEndian16(absl::string_view bytes, size_t at) {
  return ByteAt(bytes, at) | ByteAt(bytes, at + 1) << 8;
}
inline uint32_t LittleEndian32(absl::string_view bytes, size_t at) {
  return LittleEndian16(bytes, at) | LittleEndian16(bytes, at + 2) << 16;
}

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_READ_INTEGER_H_
