#include "common/rpc/new_uuid.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_format.h"

namespace tandem::rpc {

std::string NewUuid() {
  // All bits from the system: a generator with a seed of 32 bits would repeat itself among the
  // threads of a large fleet.
  std::random_device device;
  const uint32_t a = device(), b = device(), c = device(), d = device();
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", a, b >> 16, b & 0xfff,
                         0x8000 | ((c >> 16) & 0x3fff), c & 0xffff, d);
}

}  // namespace tandem::rpc
