#include "common/checkpoint/shard_writer.h"

#include "absl/strings/str_cat.h"
#include "common/io/atomic_file.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {

std::string ShardName(int rank, int ranks) { return absl::StrCat("rank-", rank, "-of-", ranks); }

absl::StatusOr<ShardWriter> ShardWriter::Create(const std::string& folder,
                                                const std::string& name) {
  ASSIGN_OR_RETURN(BlockFileWriter file,
                   BlockFileWriter::Create(absl::StrCat(folder, "/", name, ".bin")));
  return ShardWriter(absl::StrCat(folder, "/", name, ".json"), name + ".bin", std::move(file));
}

absl::Status ShardWriter::Add(const std::string& model, const std::string& kind, Run run,
                              absl::Span<const float> elements) {
  run.offset = file_.size_bytes() / static_cast<int64_t>(sizeof(float));
  index_.runs.push_back({model, kind, std::move(run)});
  return file_.Append(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(elements.data()),
                                          elements.size() * sizeof(float)));
}

absl::Status ShardWriter::Commit() {
  ASSIGN_OR_RETURN(index_.digests, file_.Commit());
  return io::WriteFileAtomically(index_path_, SerializeIndex(index_));
}

}  // namespace tandem::checkpoint
