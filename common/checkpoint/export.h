// Exports a checkpoint as a Hugging Face folder, with tensors named and laid out as the family of its
// config.json stores them, tensor by tensor: never holds a whole model in memory.
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
  // The model's folder, of config.json, the tokenizer and the tensors' names; empty: the one that
  // the checkpoint names.
  std::string source_folder;
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
// errors; NOT_FOUND if the checkpoint has no such model or the source folder does not exist;
// ParseModelSpec()'s errors for its config.json. Leaves nothing behind after an error.
absl::StatusOr<ExportReport> ExportCheckpoint(const ExportOptions& options);

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_EXPORT_H_
