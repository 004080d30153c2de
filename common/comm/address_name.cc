#include "common/comm/address_name.h"

#include <netdb.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::comm {

std::string AddressName(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if ((address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  absl::string_view name = host;
  absl::ConsumePrefix(&name, "::ffff:");
  return name.find(':') == name.npos ? absl::StrCat(name, ":", port)
                                     : absl::StrCat("[", name, "]:", port);
}

}  // namespace tandem::comm
