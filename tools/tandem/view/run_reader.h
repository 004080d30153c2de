// RunReader: reads a run's folder for the viewer's page.
//
//   status   {"state": "running" | "stopped" | "finished", "last_step", "total_steps",
//             "generation", "num_lines", "changed": when metrics.jsonl last changed, Unix seconds}
//   config   {"config": YAML, "advantage_by_std"}
//   metrics  {"generation", "from", "total", "lines": lines of metrics.jsonl from line `from` on}
//   steps    {"steps": steps with samples, ascending, "more": whether later ones exist}
//   samples  {"samples": lines of rollouts/N.jsonl or evaluations/N.jsonl, with "tokens", the text
//             of each token, "special", the indices of special tokens, and "images", if there are
//             any (sample_images.h),
//             "image_placeholder": what stands for an image in prompts, null if unknown,
//             "next": where the next lines begin, null at the end}
//
// Each reply is bounded: the page asks again for the rest.
#ifndef TANDEM_TOOLS_TANDEM_VIEW_RUN_READER_H_
#define TANDEM_TOOLS_TANDEM_VIEW_RUN_READER_H_

#include <compare>
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
#include "tools/tandem/view/sample_images.h"

namespace tandem::view {

// A token's text is what it completes: a character of several tokens belongs to the last of them.
struct TokenTexts {
  std::vector<std::string> texts;
  std::vector<int64_t> special;  // indices of special tokens
};

enum class SampleSet { kRollouts, kEvaluations };

struct SampleKey {
  SampleSet set = SampleSet::kRollouts;
  int64_t step = 0;
  int64_t sample = 0;  // its line

  auto operator<=>(const SampleKey&) const = default;
};

// Reads files on request, so the run may still be active. Thread-safe.
class RunReader {
 public:
  // NOT_FOUND if the folder has no config.yaml. Uses the tokenizer of the run's model; without one,
  // tokens appear as their ids.
  static absl::StatusOr<std::unique_ptr<RunReader>> Open(const std::string& run_dir);

  absl::StatusOr<nlohmann::json> Status();
  absl::StatusOr<nlohmann::json> Config();
  // Lines are numbered from 0 within a generation. A new one begins when metrics.jsonl is replaced
  // or truncated: the run started again or resumed. A request for another generation gets the lines
  // from 0 on.
  absl::StatusOr<nlohmann::json> Metrics(int64_t generation, int64_t from);
  nlohmann::json Steps(SampleSet set, int64_t after) const;
  // `offset` is 0 or an earlier reply's "next". NOT_FOUND for a step without samples.
  absl::StatusOr<nlohmann::json> Samples(SampleSet set, int64_t step, int64_t offset) const;

  // Returns the image with this SHA-256 digest, 64 hexadecimal digits. NOT_FOUND if no sample of the
  // step names it; else the errors of ReadServedImage().
  absl::StatusOr<ServedImage> Image(SampleSet set, int64_t step, const std::string& digest) const;

  // Returns the ids of a sample's prompt and response. OUT_OF_RANGE if the step has fewer samples;
  // UNIMPLEMENTED for a sample with images.
  absl::StatusOr<std::vector<int32_t>> SampleIds(const SampleKey& key) const;
  TokenTexts Texts(absl::Span<const int32_t> ids) const;

  // Returns a folder with weights: the trained model if the run has written it, else the initial
  // model.
  std::string ModelFolder() const;
  // Returns model.family_file of the run.
  std::string FamilyFile() const;

 private:
  // Differs once the file's content does.
  struct FileVersion {
    uint64_t inode = 0;
    int64_t size_bytes = 0;
    int64_t changed_ns = 0;
    bool operator==(const FileVersion&) const = default;
  };

  explicit RunReader(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  // NOT_FOUND if the step has no samples, INVALID_ARGUMENT if the file is no regular one.
  absl::StatusOr<std::string> SamplesPath(SampleSet set, int64_t step) const;
  // Reads config.yaml if it has changed: a run that resumes may have other options.
  absl::Status ReadConfig() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads the new lines of metrics.jsonl.
  absl::Status ReadMetrics() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads placeholders_ from the folder's config.json and preprocessor_config.json, if it has them.
  void ReadPlaceholders(const std::string& model_folder);
  void BeginGeneration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string run_dir_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // may be null
  images::PlaceholderIds placeholders_;              // of the model; -1: none, or unknown

  mutable absl::Mutex mu_;
  FileVersion config_version_ ABSL_GUARDED_BY(mu_);
  std::string config_text_ ABSL_GUARDED_BY(mu_);
  config::v1::RunConfig config_ ABSL_GUARDED_BY(mu_);
  std::vector<nlohmann::json> metrics_ ABSL_GUARDED_BY(mu_);
  uint64_t metrics_file_ ABSL_GUARDED_BY(mu_) = 0;      // its inode
  int64_t metrics_end_ ABSL_GUARDED_BY(mu_) = 0;        // bytes of complete lines read so far
  int64_t metrics_changed_s_ ABSL_GUARDED_BY(mu_) = 0;  // its time of modification; 0: no file
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_RUN_READER_H_
