// Reads elements of a checkpoint's logical tensors, independent of how the writer sharded them.
//
//   ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(folder));
//   RETURN_IF_ERROR(reader.Read("policy", "model.norm.weight", "master", 0, out));
#ifndef TANDEM_COMMON_CHECKPOINT_CHECKPOINT_READER_H_
#define TANDEM_COMMON_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/block_file.h"
#include "common/checkpoint/layout.h"
#include "common/checkpoint/manifest.h"

namespace tandem::checkpoint {

// Single-threaded. Reads and verifies only the blocks that hold the requested bytes.
class CheckpointReader {
 public:
  // Reads manifest and indexes. NOT_FOUND, INVALID_ARGUMENT and DATA_LOSS from ReadManifest();
  // DATA_LOSS also if a rank's file is missing or truncated, or if the ranks' files together lack
  // elements of a tensor, which the error names.
  static absl::StatusOr<CheckpointReader> Open(const std::string& folder);

  const Manifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }

  // Reads elements [first, first + out.size()) of a tensor, row-major. DATA_LOSS names file and
  // tensor.
  absl::Status Read(const std::string& model, const std::string& tensor, const std::string& kind,
                    int64_t first, absl::Span<float> out);

  // Reads the elements of `kind` that `run` covers into `out`, in the run's own order: out[i] is
  // element begin + i of its box.
  absl::Status ReadRun(const std::string& model, const std::string& kind, const Run& run,
                       absl::Span<float> out);

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // model, tensor, kind
  struct Source {
    size_t file;  // index into files_
    Run run;      // offset: elements from the start of the file
  };

  CheckpointReader() = default;
  absl::Status CheckCoverage() const;

  std::string folder_;
  Manifest manifest_;
  std::vector<BlockFileReader> files_;
  std::map<Key, std::vector<Source>> sources_;
};

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_CHECKPOINT_READER_H_
