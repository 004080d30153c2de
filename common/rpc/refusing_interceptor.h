// Fails every call of a channel with one status, before anything is sent.
#ifndef TANDEM_COMMON_RPC_REFUSING_INTERCEPTOR_H_
#define TANDEM_COMMON_RPC_REFUSING_INTERCEPTOR_H_

#include <grpcpp/support/client_interceptor.h>

#include <memory>

#include "absl/status/status.h"

namespace tandem::rpc {

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> RefusingInterceptor(
    const absl::Status& why);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_REFUSING_INTERCEPTOR_H_
