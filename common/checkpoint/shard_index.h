// The index of a rank's data file: which elements of which tensors are where in it, and the digests
// of its blocks. See format.md.
#ifndef TANDEM_COMMON_CHECKPOINT_SHARD_INDEX_H_
#define TANDEM_COMMON_CHECKPOINT_SHARD_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/block_file.h"
#include "common/checkpoint/layout.h"

namespace tandem::checkpoint {

// A run in a file; `run.offset` counts float32 elements from the file's start (bytes / 4).
struct StoredRun {
  std::string model;  // "policy"
  std::string kind;   // "master", "exp_avg", "exp_avg_sq"
  Run run;
};

struct ShardIndex {
  std::string data_file;  // name, in the same folder
  BlockDigests digests;
  std::vector<StoredRun> runs;
};

std::string SerializeIndex(const ShardIndex& index);
// `place` is the file's path, for errors. INVALID_ARGUMENT if the text is no index.
absl::StatusOr<ShardIndex> ParseIndex(const std::string& text, const std::string& place);

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_SHARD_INDEX_H_
