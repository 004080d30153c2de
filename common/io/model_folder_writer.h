// Writes a Hugging Face model folder that other tools load unchanged: streams the weights, and
// copies config and tokenizer files from the model's source folder.
//
//   io::ModelFolderWriter::Options options;
//   options.source_folder = base_model;
//   ASSIGN_OR_RETURN(io::ModelFolderWriter writer,
//                    io::ModelFolderWriter::Create(run_dir + "/model", declarations, options));
//   for (const Piece& piece : pieces) RETURN_IF_ERROR(writer.Append(piece.tensor, piece.bytes));
//   RETURN_IF_ERROR(writer.Commit());
#ifndef TANDEM_COMMON_IO_MODEL_FOLDER_WRITER_H_
#define TANDEM_COMMON_IO_MODEL_FOLDER_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/atomic_folder.h"
#include "common/io/safetensors_writer.h"

namespace tandem::io {

// Bytes of the files that a new folder copies from `source_folder`; 0 if it does not exist.
int64_t SideFileBytes(const std::string& source_folder);

// Owned and used by one thread at a time. The folder appears atomically at Commit(); a writer
// destroyed earlier leaves nothing.
class ModelFolderWriter {
 public:
  struct Options {
    // Folder to copy config.json, generation_config.json, the tokenizer's files and the licence
    // from. Its quantization_config is left out, as the tensors are what is declared. Empty: uses `config` alone, and the caller adds files to temporary_path().
    std::string source_folder;

    // Merged into the source's config.json (RFC 7396), or the whole config.json without a source.
    // `torch_dtype` (and `dtype`) are set from the tensors if these share one dtype.
    nlohmann::json config = nlohmann::json::object();

    // Up to this size one model.safetensors; above it an index and shards of at most this size. A
    // larger tensor gets a shard of its own.
    int64_t max_shard_bytes = 5'000'000'000;

    // Whether to replace an existing model folder. Other folders with files are never replaced.
    bool replace_model = false;
  };

  // Declares all tensors and copies the side files. INVALID_ARGUMENT and NOT_FOUND from the config
  // reader and SafetensorsWriter; CheckReplaceable()'s errors.
  static absl::StatusOr<ModelFolderWriter> Create(const std::string& path,
                                                  std::vector<TensorDeclaration> tensors,
                                                  const Options& options);

  ModelFolderWriter(ModelFolderWriter&&) = default;

  // Like SafetensorsWriter::Append(): in declaration order, in pieces of any size.
  absl::Status Append(absl::string_view name, absl::Span<const std::byte> bytes);

  // FAILED_PRECONDITION if bytes are missing; AtomicFolder::Commit()'s errors.
  absl::Status Commit();

  // The folder before Commit(), for files that the caller adds.
  const std::string& temporary_path() const { return folder_.temporary_path(); }

 private:
  struct Shard {
    std::string file;
    std::vector<TensorDeclaration> tensors;
    int64_t size_bytes = 0;
    int64_t missing_bytes = 0;
  };

  ModelFolderWriter(AtomicFolder folder, std::vector<Shard> shards);
  static absl::StatusOr<std::vector<Shard>> PlanShards(std::vector<TensorDeclaration> tensors,
                                                       int64_t max_shard_bytes);
  absl::Status OpenShard();
  absl::Status CommitCompleteShards();
  absl::Status WriteIndex() const;

  AtomicFolder folder_;
  std::vector<Shard> shards_;
  size_t current_ = 0;  // the shard being written
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_MODEL_FOLDER_WRITER_H_
