// Exports the sharded policy as a Hugging Face folder, with tensors named and laid out as in the
// model's own folder. No rank ever holds the whole model: the leader receives one piece of one shard
// at a time and appends it to the file, or to the tensor that several parameters share.
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_HUGGING_FACE_EXPORT_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_HUGGING_FACE_EXPORT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

struct HuggingFaceExport {
  std::string path;  // output folder; replaces an existing model folder
  // The model's folder: its config.json and the tokenizer's files are copied; its tensors' names,
  // if it has weights, say whether an optional prefix is in use.
  std::string source_folder;
  at::ScalarType dtype = at::kFloat;  // kFloat or kBFloat16
};

struct ExportResult {
  // Result of the write on the leader; OK on the other ranks. An error leaves nothing behind.
  absl::Status written;
  int64_t size_bytes = 0;  // of the tensors
};

// Collective over `mesh`, the model's; rank 0 writes. Returns the status of the collectives. A full
// disk must not make the ranks diverge, so ExportResult::written reports it.
absl::StatusOr<ExportResult> ExportHuggingFace(ShardedModel& model, const comm::DeviceMesh& mesh,
                                               const HuggingFaceExport& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_HUGGING_FACE_EXPORT_H_
