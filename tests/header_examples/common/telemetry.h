// What the usage examples in common/telemetry leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TELEMETRY_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TELEMETRY_H_

#include <map>

namespace tandem::telemetry::log_example {
extern int64_t bytes;
}  // namespace tandem::telemetry::log_example

namespace tandem::telemetry::phase_timer_example {
extern std::map<std::string, double> metrics;
}  // namespace tandem::telemetry::phase_timer_example

namespace tandem::telemetry::trace_example {
extern int unit;
}  // namespace tandem::telemetry::trace_example

namespace tandem::telemetry::trace_context_example {
extern std::string header;
}  // namespace tandem::telemetry::trace_context_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TELEMETRY_H_
