// Safetensors files of any content, right or wrong, as bytes.
#ifndef TANDEM_TESTS_COMMON_IO_SAFETENSORS_BYTES_H_
#define TANDEM_TESTS_COMMON_IO_SAFETENSORS_BYTES_H_

#include <cstdint>
#include <string>

namespace tandem::testing {

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  return LittleEndian64(header.size()) + header + data;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_COMMON_IO_SAFETENSORS_BYTES_H_
