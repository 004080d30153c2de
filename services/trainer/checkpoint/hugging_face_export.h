// Writing the sharded policy as a Hugging Face folder, without any rank ever holding the whole
// model: the leader receives one piece of one shard at a time and appends it to the file.
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
  std::string path;                   // of the folder; a model folder that is there is replaced
  std::string source_folder;          // config.json and the tokenizer's files are copied from here
  at::ScalarType dtype = at::kFloat;  // kFloat or kBFloat16
};

struct ExportResult {
  // How writing went, on the leader; on the other ranks OK. After an error nothing is left behind.
  absl::Status written;
  int64_t size_bytes = 0;  // of the tensors
};

// Collective: every rank of the mesh, the model's, calls it; rank 0 writes. The status is that of
// the collectives; a full disk is no reason for the ranks to part, so it is told in the result.
absl::StatusOr<ExportResult> ExportHuggingFace(ShardedModel& model, const comm::DeviceMesh& mesh,
                                               const HuggingFaceExport& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_HUGGING_FACE_EXPORT_H_
