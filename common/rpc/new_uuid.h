// Names for requests and updates that nobody else gives.
#ifndef TANDEM_COMMON_RPC_NEW_UUID_H_
#define TANDEM_COMMON_RPC_NEW_UUID_H_

#include <string>

namespace tandem::rpc {

// A random UUID, of version 4. Any thread.
std::string NewUuid();

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_NEW_UUID_H_
