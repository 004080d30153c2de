// Logs the exception that ends a process.
//
//   telemetry::NameUncaughtExceptions("tandem-trainer");  // first in main()
#ifndef TANDEM_COMMON_TELEMETRY_UNCAUGHT_EXCEPTIONS_H_
#define TANDEM_COMMON_TELEMETRY_UNCAUGHT_EXCEPTIONS_H_

#include <string>

namespace tandem::telemetry {

// Call first in main(). From then on an uncaught exception, on any thread, ends the process with
// exit code 1 and a log line that names the cause, instead of a silent SIGABRT.
void NameUncaughtExceptions(const std::string& program);

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_UNCAUGHT_EXCEPTIONS_H_
