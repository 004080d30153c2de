// Routes gRPC's own log into ours.
#ifndef TANDEM_COMMON_RPC_GRPC_LOG_H_
#define TANDEM_COMMON_RPC_GRPC_LOG_H_

namespace tandem::rpc {

// Logs gRPC's lines at debug level: what matters in them also reaches our code as a status, once
// and in full. If GRPC_VERBOSITY or GRPC_TRACE is set, someone is debugging gRPC, and its log stays
// as it is. Idempotent; channels and servers call it.
void RouteGrpcLog();

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_GRPC_LOG_H_
