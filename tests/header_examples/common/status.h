// What the usage examples in common/status leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_STATUS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_STATUS_H_

#include "common/rpc/status_conversion.h"

namespace tandem::exceptions_example {
absl::Status Run();
extern grpc::ServerUnaryReactor* reactor;
}  // namespace tandem::exceptions_example

namespace tandem::status_macros_example {
struct ModelSpec {};
struct Model {
  explicit Model(const ModelSpec& spec);
};
absl::StatusOr<ModelSpec> ReadSpec(const std::string& path);
absl::Status Validate(const ModelSpec& spec);
}  // namespace tandem::status_macros_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_STATUS_H_
