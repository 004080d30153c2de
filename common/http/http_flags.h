// Command-line flag shared by every program that serves HTTP.
#ifndef TANDEM_COMMON_HTTP_HTTP_FLAGS_H_
#define TANDEM_COMMON_HTTP_HTTP_FLAGS_H_

#include <CLI/CLI.hpp>

namespace tandem::http {

// Adds --http-allow-host NAME[,NAME...], which sets the environment variable kAllowHostVariable for
// the servers of this process and of its child processes. See host_policy.h.
void AddHttpFlags(CLI::App& app);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_HTTP_FLAGS_H_
