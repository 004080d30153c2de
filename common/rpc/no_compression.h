// Disables compression on servers and channels: gRPC 1.51 decompresses a message before it checks
// the resulting size, and 60 KB become 60 MB.
#ifndef TANDEM_COMMON_RPC_NO_COMPRESSION_H_
#define TANDEM_COMMON_RPC_NO_COMPRESSION_H_

#include <grpc/compression.h>
#include <grpc/grpc.h>

namespace tandem::rpc {

// Calls set(name, number) for each setting.
template <typename Set>
void RefuseCompression(const Set& set) {
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_NO_COMPRESSION_H_
