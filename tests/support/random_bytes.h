// Bytes of no pattern, the same in every run.
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_BYTES_H_
#define TANDEM_TESTS_SUPPORT_RANDOM_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tandem::testing {

inline std::vector<std::byte> RandomBytes(int64_t size, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RANDOM_BYTES_H_
