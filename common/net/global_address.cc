#include "common/net/global_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tandem::net {
namespace {

// The first `num_bits` of an address.
struct Range {
  std::array<uint8_t, 16> bytes;
  int num_bits;
  const char* what;
};

// RFC 6890 and its registry.
constexpr Range kSpecialIpv4[] = {
    {{0}, 8, "this network"},
    {{10}, 8, "private"},
    {{100, 64}, 10, "shared by a provider's customers"},
    {{127}, 8, "loopback"},
    {{169, 254}, 16, "link-local"},
    {{172, 16}, 12, "private"},
    {{192, 0, 0}, 24, "reserved for protocols"},
    {{192, 0, 2}, 24, "for documentation"},
    {{192, 88, 99}, 24, "a relay of 6to4"},
    {{192, 168}, 16, "private"},
    {{198, 18}, 15, "for benchmarks"},
    {{198, 51, 100}, 24, "for documentation"},
    {{203, 0, 113}, 24, "for documentation"},
    {{224}, 4, "multicast"},
    {{240}, 4, "reserved"},
};

// Only 2000::/3 is given out; the others name what people meet outside of it.
constexpr Range kGlobalIpv6 = {{0x20}, 3, "global"};
constexpr Range kSpecialIpv6[] = {
    {{}, 128, "unspecified"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, "loopback"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, "an IPv4 address mapped to IPv6"},
    {{0, 0x64, 0xff, 0x9b}, 32, "an IPv4 address behind NAT64"},
    {{0xfc}, 7, "unique-local"},
    {{0xfe, 0x80}, 10, "link-local"},
    {{0xff}, 8, "multicast"},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, "for documentation"},
    {{0x20, 0x01}, 23, "reserved for protocols"},
    {{0x20, 0x02}, 16, "6to4"},
    {{0x3f, 0xff}, 20, "for documentation"},
};

bool IsIn(const uint8_t* address, const Range& range) {
  const int num_bytes = range.num_bits / 8, rest = range.num_bits % 8;
  if (std::memcmp(address, range.bytes.data(), num_bytes) != 0) return false;
  if (rest == 0) return true;
  const int mask = 0xff & (0xff << (8 - rest));
  return (address[num_bytes] & mask) == (range.bytes[num_bytes] & mask);
}

// What keeps the address from being global; null if nothing does.
const char* WhyNotGlobal(const SocketAddress& address) {
  if (address.bytes.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address.bytes).sin_addr;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&in);
    for (const Range& range : kSpecialIpv4) {
      if (IsIn(bytes, range)) return range.what;
    }
    return nullptr;
  }
  if (!address.is_ipv6()) return "of an unknown family";
  const uint8_t* bytes = reinterpret_cast<const sockaddr_in6&>(address.bytes).sin6_addr.s6_addr;
  for (const Range& range : kSpecialIpv6) {
    if (IsIn(bytes, range)) return range.what;
  }
  return IsIn(bytes, kGlobalIpv6) ? nullptr : "not given out";
}

}  // namespace

std::string AddressText(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = address.is_ipv6()
                          ? static_cast<const void*>(
                                &reinterpret_cast<const sockaddr_in6&>(address.bytes).sin6_addr)
                          : &reinterpret_cast<const sockaddr_in&>(address.bytes).sin_addr;
  inet_ntop(address.is_ipv6() ? AF_INET6 : AF_INET, bytes, text, sizeof(text));
  return text;
}

absl::Status CheckGlobal(const SocketAddress& address) {
  const char* const what = WhyNotGlobal(address);
  if (what == nullptr) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("expected an address of the public internet, found ", AddressText(address),
                   ", which is ", what));
}

}  // namespace tandem::net
