// StreamThread: runs a stream's work in order, with random delays. Any thread.
#ifndef TANDEM_TESTS_SIMULATOR_STREAM_THREAD_H_
#define TANDEM_TESTS_SIMULATOR_STREAM_THREAD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::testing {

class StreamThread {
 public:
  // Never destroyed: its thread waits for work until the process ends.
  StreamThread();

  // From now on delays are drawn from `seed`.
  void SetDelays(uint64_t seed, absl::Duration longest);
  void Push(std::function<void()> run);
  // Whether the first `count` pieces of work are done.
  bool IsDone(uint64_t count);
  void Await(uint64_t count);

 private:
  void Run();
  absl::Duration DrawDelay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  absl::Duration longest_ ABSL_GUARDED_BY(mu_);
  uint64_t rarity_ ABSL_GUARDED_BY(mu_) = 8;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMULATOR_STREAM_THREAD_H_
