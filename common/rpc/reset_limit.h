// ResetLimit: how many calls a client may take back. HTTP/2 lets a client open a call and reset it
// at once, without end: the limit on concurrent calls never sees more than one, while gRPC keeps
// about 23 KB for each until its threads have got to it.
#ifndef TANDEM_COMMON_RPC_RESET_LIMIT_H_
#define TANDEM_COMMON_RPC_RESET_LIMIT_H_

#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::rpc {

// Any thread. A client is a connection, by its peer's address: who resets calls may do so before he
// has said who he is.
class ResetLimit {
 public:
  // Of a connection: `burst` resets at once, and `burst` more in every `interval`.
  ResetLimit(int burst, absl::Duration interval) : burst_(burst), interval_(interval) {}

  // Counts a call that its client reset. Returns true where that is one too many; the connection
  // starts from nothing then, as the caller is to end it.
  bool Exceeds(const std::string& peer, absl::Time now);

  // Connections that have reset calls lately.
  size_t size() const;

 private:
  struct Bucket {
    double resets = 0;
    absl::Time at;
  };

  // What remains of a bucket at `now`.
  double Level(const Bucket& bucket, absl::Time now) const;

  const int burst_;
  const absl::Duration interval_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mu_);
  absl::Time next_sweep_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_RESET_LIMIT_H_
