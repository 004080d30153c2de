// The address of a socket's end, as people write it.
#ifndef TANDEM_COMMON_COMM_ADDRESS_NAME_H_
#define TANDEM_COMMON_COMM_ADDRESS_NAME_H_

#include <sys/socket.h>

#include <string>

namespace tandem::comm {

// "HOST:PORT" in digits, "[HOST]:PORT" for IPv6; "an unknown address" where it is neither. An
// IPv4 address that came through a socket of both families is written as IPv4.
std::string AddressName(const sockaddr_storage& address, socklen_t length);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_ADDRESS_NAME_H_
