// JudgeCache: what a judge has answered, by the digest of the request, in memory and, if there is a
// file, for later runs: JSON lines {"key": digest of the request, "answer": the judge's text}.
//
//   JudgeCache cache("judge.jsonl");
//   if (std::optional<std::string> answer = cache.Find(key)) Score(*answer);
//   RETURN_IF_ERROR(cache.Add(key, Ask(request)));
#ifndef TANDEM_TOOLS_TANDEM_REWARD_JUDGE_CACHE_H_
#define TANDEM_TOOLS_TANDEM_REWARD_JUDGE_CACHE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tandem::reward {

// Thread-safe. Several processes may use one file at a time: each appends whole lines under a lock of
// the file, and reads what was there when it began.
class JudgeCache {
 public:
  // Bytes of keys and answers in memory; beyond them the oldest are forgotten, and asked for again.
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  // `path` empty: memory only. Load() reads the file.
  explicit JudgeCache(std::string path, size_t max_bytes = kMaxBytes)
      : path_(std::move(path)), max_bytes_(max_bytes) {}

  // Reads the file, if there is one, and drops a last line that a crash tore. INVALID_ARGUMENT names
  // the line that is no entry; otherwise errors of the file system.
  absl::Status Load();

  // SHA-256 of the text, in hexadecimal digits.
  static std::string KeyOf(absl::string_view request);

  std::optional<std::string> Find(const std::string& key) const;

  // Keeps the answer in memory whatever is returned: an error is the file's.
  absl::Status Add(const std::string& key, const std::string& answer);

 private:
  void Keep(const std::string& key, std::string answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const size_t max_bytes_;
  mutable absl::Mutex mu_;
  absl::Mutex file_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // one writer of this process at a time
  std::unordered_map<std::string, std::string> answers_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mu_);  // keys, the oldest first
  size_t num_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_JUDGE_CACHE_H_
