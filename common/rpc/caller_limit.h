// CallerLimit: bounds the calls that each client has in flight.
#ifndef TANDEM_COMMON_RPC_CALLER_LIMIT_H_
#define TANDEM_COMMON_RPC_CALLER_LIMIT_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::rpc {

// Thread-safe. CallerOf() identifies a client by its certificate or token. A client without calls
// in flight takes no memory.
class CallerLimit {
 public:
  explicit CallerLimit(int max_calls) : max_calls_(max_calls) {}

  // RESOURCE_EXHAUSTED, with the limit and the flag that raises it, if the caller may not start
  // another call.
  absl::Status Check(const std::string& caller) const;
  void Begin(const std::string& caller);
  void End(const std::string& caller);

 private:
  const int max_calls_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, int> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CALLER_LIMIT_H_
