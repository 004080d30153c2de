// Upper bounds on the resources that one HTTP server uses, whatever its clients do.
#ifndef TANDEM_COMMON_HTTP_LIMITS_H_
#define TANDEM_COMMON_HTTP_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace tandem::http {

// Threads that serve requests, and the queue of requests waiting for one.
struct Lane {
  int num_threads = 0;
  int max_queued = 0;
};

struct Limits {
  // Total connections, and their largest share of the descriptors that the process may open. The
  // smaller bound counts, but at least 16.
  int max_connections = 1024;
  double descriptor_share = 0.25;
  // Quick requests, and slow ones, which never hold up the quick ones.
  Lane quick = {.num_threads = 2, .max_queued = 128};
  Lane slow;

  size_t max_head_bytes = size_t{16} << 10;
  // Total of received bodies that are not parsed yet and responses that are not sent yet.
  int64_t max_buffered_bytes = int64_t{128} << 20;

  // Time from accepting the connection to the end of the request's head, and of its body.
  absl::Duration head_timeout = absl::Seconds(10);
  absl::Duration request_timeout = absl::Seconds(60);
  // How long a response may wait for its reader: see WriteAllowance().
  absl::Duration write_timeout = absl::Seconds(30);
  // How long, and how many bytes, the server reads of a refused request's rest, so that its client
  // sees the response.
  absl::Duration linger_timeout = absl::Seconds(5);
  int64_t max_linger_bytes = int64_t{32} << 20;
};

// One address may hold 7 of 8 places, so that no client locks out all others.
inline int PerAddress(int places) { return places - places / 8; }

// Time that a client may take to read `bytes`. A client that reads at least 256 KiB/s never runs
// out of it.
inline absl::Duration WriteAllowance(absl::Duration timeout, int64_t bytes) {
  return timeout + absl::Milliseconds(bytes / 262);
}

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_LIMITS_H_
