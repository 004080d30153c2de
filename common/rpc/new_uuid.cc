#include "common/rpc/new_uuid.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_format.h"
#include "common/security/secret.h"

namespace tandem::rpc {

std::string NewUuid() {
  // All bits are random: a generator with a seed of 32 bits would repeat itself among the threads of
  // a large fleet. OpenSSL's, because std::random_device asks the processor what it has each time it
  // is made: 95 us in a virtual machine.
  std::array<uint32_t, 4> bits;
  const std::string drawn = security::DrawSecret(sizeof(bits));
  std::memcpy(bits.data(), drawn.data(), sizeof(bits));
  const auto [a, b, c, d] = bits;
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", a, b >> 16, b & 0xfff,
                         0x8000 | ((c >> 16) & 0x3fff), c & 0xffff, d);
}

}  // namespace tandem::rpc
