// Inspector: the run's model evaluated on a sample: entropies, log-probs, attention. The program
// tandem-inspect computes them on demand, so that only it links the tensor library.
#ifndef TANDEM_TOOLS_TANDEM_VIEW_INSPECTOR_H_
#define TANDEM_TOOLS_TANDEM_VIEW_INSPECTOR_H_

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tools/tandem/view/run_reader.h"

namespace tandem::view {

// Caches the results of the last few samples in a temporary folder. Thread-safe; handles one sample
// at a time.
class Inspector {
 public:
  // `reader` must outlive it; `program` is the path of tandem-inspect.
  Inspector(const RunReader& reader, std::string program);
  ~Inspector();

  // Returns {"entropies", "logprobs", "num_layers", "num_heads", "tokens", "model"} of prompt and
  // response. Errors: those of the program, and DEADLINE_EXCEEDED after two minutes.
  absl::StatusOr<nlohmann::json> Inspect(const SampleKey& key);
  // Returns bytes [num_heads][T][T] of one layer.
  absl::StatusOr<std::string> Attention(const SampleKey& key, int64_t layer);

 private:
  // Runs the program if its result is not cached; returns the path of its files.
  absl::StatusOr<std::string> Find(const SampleKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RunReader& reader_;
  const std::string program_;
  std::string folder_;
  absl::Mutex mu_;
  std::deque<SampleKey> found_ ABSL_GUARDED_BY(mu_);  // oldest first
};

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_INSPECTOR_H_
