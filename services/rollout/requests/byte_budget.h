// ByteBudget: how many bytes of requests may be parsed and tokenized at once. Both take many times
// the request's size, so that a few large requests together could exhaust the memory.
//
//   ASSIGN_OR_RETURN(const ByteBudget::Share share, budget.Take(body.size(), check_client));
//   Parse(body);
#ifndef TANDEM_SERVICES_ROLLOUT_REQUESTS_BYTE_BUDGET_H_
#define TANDEM_SERVICES_ROLLOUT_REQUESTS_BYTE_BUDGET_H_

#include <cstdint>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tandem::rollout {

// Thread-safe. Must outlive its shares.
class ByteBudget {
 public:
  // Small requests never wait: they are many, and take little together.
  static constexpr int64_t kFreeBytes = 64 << 10;

  explicit ByteBudget(int64_t total_bytes) : total_bytes_(total_bytes) {}

  // Returns its bytes when it is destroyed.
  class Share {
   public:
    Share(Share&& other) noexcept
        : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share();

   private:
    friend class ByteBudget;
    Share(ByteBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
    ByteBudget* budget_;
    int64_t bytes_;
  };

  // Waits, in the order of the calls, until the bytes are free. A request of more than the total
  // gets all of it. Calls `check` several times a second meanwhile, and returns its error.
  absl::StatusOr<Share> Take(int64_t bytes, absl::FunctionRef<absl::Status()> check);

 private:
  const int64_t total_bytes_;
  absl::Mutex mu_;
  int64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int64_t> waiting_ ABSL_GUARDED_BY(mu_);  // tickets
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_REQUESTS_BYTE_BUDGET_H_
