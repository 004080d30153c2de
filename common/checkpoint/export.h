// Exports a checkpoint as a Hugging Face folder, tensor by tensor in pieces: never holds a whole
// model in memory.
#ifndef TANDEM_COMMON_CHECKPOINT_EXPORT_H_
#define TANDEM_COMMON_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/dtype.h"

namespace tandem::checkpoint {

struct ExportOptions {
  std::string checkpoint;  // folder
  std::string output;      // folder to write; refused if it exists and is not empty
  std::string model = "policy";
  std::string source_folder;          // of config.json and tokenizer; empty: from the checkpoint
  io::DType dtype = io::DType::kF32;  // kF32 or kBF16, to the nearest, ties to even
  int64_t max_shard_bytes = 5'000'000'000;
};

struct ExportReport {
  int64_t step = 0;
  int64_t policy_version = 0;
  int64_t num_tensors = 0;
  int64_t size_bytes = 0;  // of the tensors
};

// ALREADY_EXISTS or FAILED_PRECONDITION if the output is no empty folder; CheckpointReader's
// errors; NOT_FOUND if the checkpoint has no such model or the source folder does not exist. Leaves
// nothing behind after an error.
absl::StatusOr<ExportReport> ExportCheckpoint(const ExportOptions& options);

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_EXPORT_H_
