// The flag of every program that serves HTTP.
#ifndef TANDEM_COMMON_HTTP_HTTP_FLAGS_H_
#define TANDEM_COMMON_HTTP_HTTP_FLAGS_H_

#include <CLI/CLI.hpp>

namespace tandem::http {

// --http-allow-host NAME[,NAME...] stands for the environment variable kAllowHostVariable, which
// the servers of this process and of those that it starts read. See host_policy.h.
void AddHttpFlags(CLI::App& app);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_HTTP_FLAGS_H_
