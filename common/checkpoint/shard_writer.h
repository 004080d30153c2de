// Writes one rank's shard: a data file of float32 elements, then its index. An index that exists
// proves that the rank's data is complete and durable.
//
//   ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::Create(folder, ShardName(rank, ranks)));
//   for (const auto& [run, elements] : runs) {
//     RETURN_IF_ERROR(writer.Add("policy", "master", run, elements));
//   }
//   RETURN_IF_ERROR(writer.Commit());
#ifndef TANDEM_COMMON_CHECKPOINT_SHARD_WRITER_H_
#define TANDEM_COMMON_CHECKPOINT_SHARD_WRITER_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/block_file.h"
#include "common/checkpoint/shard_index.h"

namespace tandem::checkpoint {

// "rank-1-of-4": the index is NAME.json, the data NAME.bin.
std::string ShardName(int rank, int ranks);

// Owned and used by one thread. If destroyed before Commit(), it leaves nothing.
class ShardWriter {
 public:
  static absl::StatusOr<ShardWriter> Create(const std::string& folder, const std::string& name);

  // Appends the run's elements; sets its offset to their position in the file.
  absl::Status Add(const std::string& model, const std::string& kind, Run run,
                   absl::Span<const float> elements);
  // Writes the data file, then the index, and syncs both.
  absl::Status Commit();

 private:
  ShardWriter(std::string index_path, std::string data_file, BlockFileWriter file)
      : index_path_(std::move(index_path)), file_(std::move(file)) {
    index_.data_file = std::move(data_file);
  }

  std::string index_path_;
  BlockFileWriter file_;
  ShardIndex index_;
};

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_SHARD_WRITER_H_
