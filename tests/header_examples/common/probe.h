// What the usage examples in common/probe leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PROBE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PROBE_H_

#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"

namespace tandem::probe::diagnostics_service_example {
absl::Status CheckIdle();
extern rpc::ServerOptions options;
}  // namespace tandem::probe::diagnostics_service_example

namespace tandem::probe::exceptions_example {
absl::Status Run();
extern grpc::ServerUnaryReactor* reactor;
}  // namespace tandem::probe::exceptions_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PROBE_H_
