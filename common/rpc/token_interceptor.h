// Sends the process's token to plaintext servers on this host; ServerCheck sends it over TLS.
#ifndef TANDEM_COMMON_RPC_TOKEN_INTERCEPTOR_H_
#define TANDEM_COMMON_RPC_TOKEN_INTERCEPTOR_H_

#include <grpcpp/support/client_interceptor.h>

#include <memory>

#include "common/rpc/transport_security.h"

namespace tandem::rpc {

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> TokenInterceptor(
    std::shared_ptr<const TransportSecurity> security);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_TOKEN_INTERCEPTOR_H_
