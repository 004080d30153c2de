// ResetLimit: limits how many calls a client may reset. HTTP/2 lets a client open a call and reset
// it at once, without end (rapid reset): the limit on concurrent calls never sees more than one,
// while gRPC keeps about 23 KB for each until its threads process it.
#ifndef TANDEM_COMMON_RPC_RESET_LIMIT_H_
#define TANDEM_COMMON_RPC_RESET_LIMIT_H_

#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::rpc {

// Thread-safe. A client is a connection, identified by its peer's address, because resets may come
// before the client has authenticated.
class ResetLimit {
 public:
  // Allows each connection `burst` resets at once, and `burst` more in every `interval`.
  ResetLimit(int burst, absl::Duration interval) : burst_(burst), interval_(interval) {}

  // Counts a call that its client reset. Returns true if that is one too many; the count then
  // restarts from zero, because the caller ends the connection.
  bool Exceeds(const std::string& peer, absl::Time now);

  // Number of connections that have reset calls lately.
  size_t size() const;

 private:
  struct Bucket {
    double resets = 0;
    absl::Time at;
  };

  // The bucket's level at `now`.
  double Level(const Bucket& bucket, absl::Time now) const;

  const int burst_;
  const absl::Duration interval_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mu_);
  absl::Time next_sweep_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_RESET_LIMIT_H_
