// RunReader: reads a run's folder for the viewer's page.
//
//   GET api/run                 {"name", "config", "steps" (with rollouts), "last_step",
//                                "total_steps", "advantage_by_std"}
//   GET api/metrics?after=N     {"lines": [...]}: lines of metrics.jsonl of later steps
//   GET api/rollouts?step=N     {"samples": [...]}: lines of rollouts/N.jsonl, with "tokens", the
//                                text of each token, and "special", the indices of special tokens
#ifndef TANDEM_TOOLS_TANDEM_VIEW_RUN_READER_H_
#define TANDEM_TOOLS_TANDEM_VIEW_RUN_READER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::view {

// A token's text is what it completes: a character of several tokens belongs to the last of them.
struct TokenTexts {
  std::vector<std::string> texts;
  std::vector<int64_t> special;  // indices of special tokens
};

// Reads files on request, so the run may still be active. Thread-safe.
class RunReader {
 public:
  // NOT_FOUND if the folder has no config.yaml. Uses the tokenizer of the run's model; without one,
  // tokens appear as their ids.
  static absl::StatusOr<std::unique_ptr<RunReader>> Open(const std::string& run_dir);

  absl::StatusOr<nlohmann::json> Run();
  absl::StatusOr<nlohmann::json> Metrics(int64_t after);
  // NOT_FOUND for a step without rollouts.
  absl::StatusOr<nlohmann::json> Rollouts(int64_t step) const;

  // Returns the ids of a sample's prompt and response. OUT_OF_RANGE if the step has fewer samples.
  absl::StatusOr<std::vector<int32_t>> SampleIds(int64_t step, int64_t sample) const;
  TokenTexts Texts(absl::Span<const int32_t> ids) const;

  // Returns a folder with weights: the trained model if the run has written it, else the initial
  // model.
  std::string ModelFolder() const;

 private:
  explicit RunReader(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  absl::StatusOr<std::vector<nlohmann::json>> Lines(int64_t step) const;
  // Reads the new lines of metrics.jsonl.
  absl::Status ReadMetrics() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string run_dir_;
  std::string config_text_;
  config::v1::RunConfig config_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // may be null

  absl::Mutex mu_;
  std::vector<nlohmann::json> metrics_ ABSL_GUARDED_BY(mu_);
  uint64_t metrics_file_ ABSL_GUARDED_BY(mu_) = 0;  // its inode
  int64_t metrics_end_ ABSL_GUARDED_BY(mu_) = 0;    // bytes of complete lines read so far
};

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_RUN_READER_H_
