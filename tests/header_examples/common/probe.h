// What the usage examples in common/probe leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PROBE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PROBE_H_

#include "common/rpc/server.h"

namespace tandem::probe::diagnostics_service_example {
absl::Status CheckIdle();
extern rpc::ServerOptions options;
}  // namespace tandem::probe::diagnostics_service_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PROBE_H_
