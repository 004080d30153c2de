// Progress: a run's progress line on stderr: rewritten in place on a terminal, otherwise a new line
// periodically. A quiet one shows what its user must know, and nothing that merely tells how far the
// run is.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PROGRESS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::driver {

// Used by one thread, except AddTokens(), Note() and Report().
class Progress {
 public:
  Progress(std::string title, int64_t total_steps, bool quiet = false);
  ~Progress();

  // Counts tokens that were sampled or trained on, for the displayed rate. Any thread.
  void AddTokens(int64_t count) { tokens_ += count; }

  // Call after step `step`. Unless quiet, shows `facts` verbatim: "reward 0.812", "version 12".
  void Update(int64_t step, const std::vector<std::string>& facts);

  // Writes a separate line above the progress line: something went wrong, or files moved. Any
  // thread.
  void Note(const std::string& text);

  // Like Note(), unless quiet: the run proceeds as expected. Any thread.
  void Report(const std::string& text);

  // Tokens per second since the start.
  double tokens_per_second() const;

 private:
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string title_;
  const int64_t total_steps_;
  const absl::Time start_;
  const bool terminal_;
  const bool quiet_;
  absl::Time last_shown_;
  int64_t first_step_ = -1;
  absl::Mutex mu_;  // serializes output
  bool line_open_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int64_t> tokens_{0};
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROGRESS_H_
