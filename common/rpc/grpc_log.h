// gRPC's own log.
#ifndef TANDEM_COMMON_RPC_GRPC_LOG_H_
#define TANDEM_COMMON_RPC_GRPC_LOG_H_

namespace tandem::rpc {

// Makes what gRPC logs lines of ours, at debug level: what matters in it comes back to our code as
// a status, which says it once and in full. Where GRPC_VERBOSITY or GRPC_TRACE is set, someone
// looks into gRPC itself, and its log stays as it is. Idempotent; channels and servers call it.
void RouteGrpcLog();

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_GRPC_LOG_H_
