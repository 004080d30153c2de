// What the usage examples in common/metrics leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_METRICS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_METRICS_H_

#include <memory>

namespace tandem::metrics::metric_family_example {
using Base = prometheus::Collectable;
}  // namespace tandem::metrics::metric_family_example

namespace tandem::metrics::metrics_server_example {
extern std::shared_ptr<prometheus::Collectable> engine_metrics;
}  // namespace tandem::metrics::metrics_server_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_METRICS_H_
