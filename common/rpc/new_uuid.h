// Unique ids for requests and updates.
#ifndef TANDEM_COMMON_RPC_NEW_UUID_H_
#define TANDEM_COMMON_RPC_NEW_UUID_H_

#include <string>

namespace tandem::rpc {

// Returns a random UUID, version 4. Thread-safe.
std::string NewUuid();

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_NEW_UUID_H_
