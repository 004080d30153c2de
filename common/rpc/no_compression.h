// Servers and channels without compression: gRPC 1.51 unpacks a message before it looks how long
// that makes it, and 60 KB become 60 MB.
#ifndef TANDEM_COMMON_RPC_NO_COMPRESSION_H_
#define TANDEM_COMMON_RPC_NO_COMPRESSION_H_

#include <grpc/compression.h>
#include <grpc/grpc.h>

namespace tandem::rpc {

// Gives each setting to set(name, number).
template <typename Set>
void RefuseCompression(const Set& set) {
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_NO_COMPRESSION_H_
