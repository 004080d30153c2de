#include "common/images/fetch/fetch_together.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::images {
namespace {

// The calls that are left, for the threads that share them. Outlives the caller: a thread of the pool may
// come when all is done.
class Calls {
 public:
  Calls(size_t count, absl::FunctionRef<bool(size_t i)> fetch) : count_(count), fetch_(fetch) {}

  // Makes calls until none is left.
  void Run() {
    absl::MutexLock lock(&mu_);
    while (next_ < count_) {
      const size_t i = next_++;
      ++num_running_;
      mu_.Unlock();
      bool is_good = false;
      std::exception_ptr failure;
      try {
        is_good = fetch_(i);
      } catch (...) {
        failure = std::current_exception();
      }
      mu_.Lock();
      --num_running_;
      if (is_good) continue;
      all_good_ = false;
      next_ = count_;
      if (failure_ == nullptr) failure_ = failure;
    }
  }

  // Waits for the calls of other threads.
  bool Finish() {
    absl::MutexLock lock(&mu_);
    const auto none_runs = [this] {
      mu_.AssertHeld();
      return num_running_ == 0;
    };
    mu_.Await(absl::Condition(&none_runs));
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return all_good_;
  }

 private:
  const size_t count_;
  const absl::FunctionRef<bool(size_t i)> fetch_;  // not called once Finish() has returned
  absl::Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  int num_running_ ABSL_GUARDED_BY(mu_) = 0;
  bool all_good_ ABSL_GUARDED_BY(mu_) = true;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

bool FetchTogether(size_t count, http::WorkerPool& pool, absl::FunctionRef<bool(size_t i)> fetch) {
  const auto calls = std::make_shared<Calls>(count, fetch);
  // Where the pool has no thread, the others do its part.
  for (size_t i = 1; i < std::min(kMostFetches, count); ++i) pool.Submit([calls] { calls->Run(); });
  calls->Run();
  return calls->Finish();
}

}  // namespace tandem::images
