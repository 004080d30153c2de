// What one HTTP server takes from the machine at most, whatever its clients do.
#ifndef TANDEM_COMMON_HTTP_LIMITS_H_
#define TANDEM_COMMON_HTTP_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace tandem::http {

// Threads that serve requests, and requests that wait for one.
struct Lane {
  int num_threads = 0;
  int max_queued = 0;
};

struct Limits {
  // Connections in all, but no more than this part of the descriptors that the process may open.
  int max_connections = 1024;
  double descriptor_share = 0.25;
  // Requests that are answered at once, and those that take long, which never hold up the others.
  Lane quick = {.num_threads = 2, .max_queued = 128};
  Lane slow;

  size_t max_head_bytes = size_t{16} << 10;
  // Bodies that were received and not parsed, and answers that were not sent, in all.
  int64_t max_buffered_bytes = int64_t{128} << 20;

  // From the connection to the end of the request's head, and of its body.
  absl::Duration head_timeout = absl::Seconds(10);
  absl::Duration request_timeout = absl::Seconds(60);
  // How long an answer may wait for its reader: see WriteAllowance().
  absl::Duration write_timeout = absl::Seconds(30);
  // How long, and how much of, the rest of a request that was refused is read, so that its client
  // sees the answer.
  absl::Duration linger_timeout = absl::Seconds(5);
  int64_t max_linger_bytes = int64_t{32} << 20;
};

// An address may hold 7 of 8 places of a server, so that no client shuts out all others.
inline int PerAddress(int places) { return places - places / 8; }

// Who reads 256 KiB a second, or more, is never given up.
inline absl::Duration WriteAllowance(absl::Duration timeout, int64_t bytes) {
  return timeout + absl::Milliseconds(bytes / 262);
}

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_LIMITS_H_
