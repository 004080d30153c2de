#include "common/rpc/new_uuid.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_format.h"

namespace tandem::rpc {

std::string NewUuid() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  const uint64_t high = (generator() & ~uint64_t{0xF000}) | 0x4000;
  const uint64_t low = (generator() & ~(uint64_t{3} << 62)) | (uint64_t{1} << 63);
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xFFFF,
                         high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFF);
}

}  // namespace tandem::rpc
