// Formats a socket address for people.
#ifndef TANDEM_COMMON_COMM_ADDRESS_NAME_H_
#define TANDEM_COMMON_COMM_ADDRESS_NAME_H_

#include <sys/socket.h>

#include <string>

namespace tandem::comm {

// Returns numeric "HOST:PORT", "[HOST]:PORT" for IPv6, or "an unknown address" for other families.
// Writes an IPv4-mapped address of a dual-stack socket as IPv4.
std::string AddressName(const sockaddr_storage& address, socklen_t length);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_ADDRESS_NAME_H_
