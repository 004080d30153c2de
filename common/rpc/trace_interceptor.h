// Carries trace contexts in gRPC metadata, as the header `traceparent`.
#ifndef TANDEM_COMMON_RPC_TRACE_INTERCEPTOR_H_
#define TANDEM_COMMON_RPC_TRACE_INTERCEPTOR_H_

#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <vector>

#include "common/telemetry/trace_context.h"

namespace tandem::rpc {

// For a channel: each call carries the trace context, if any, of the thread that starts it.
std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
TraceInterceptors();

// Returns the trace context in a call's metadata; not valid if it carries none.
telemetry::TraceContext TraceContextIn(
    const std::multimap<grpc::string_ref, grpc::string_ref>* metadata);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_TRACE_INTERCEPTOR_H_
