// Shows the process's token to servers of this host that speak plaintext; over TLS ServerCheck
// does.
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
