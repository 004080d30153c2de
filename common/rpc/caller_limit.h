// CallerLimit: how many calls of each client are under way.
#ifndef TANDEM_COMMON_RPC_CALLER_LIMIT_H_
#define TANDEM_COMMON_RPC_CALLER_LIMIT_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::rpc {

// Any thread. A client is what its certificate or token says (CallerOf()); the names of those that
// have no call under way are forgotten.
class CallerLimit {
 public:
  explicit CallerLimit(int max_calls) : max_calls_(max_calls) {}

  // Whether one more may begin: RESOURCE_EXHAUSTED names the limit and the flag that raises it.
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
