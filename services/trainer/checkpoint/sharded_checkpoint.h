// The sharded checkpoint on disk: what a rank writes and reads, and the manifest that ties the
// ranks' files together. The format is described in format.md, beside this file.
//
// Saving: the leader makes an io::AtomicFolder, every rank calls WriteShard() into its temporary
// path, the leader adds the manifest and commits. Loading: every rank calls VerifyShard(); when all
// have answered OK, every rank calls ReadShard().
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_SHARDED_CHECKPOINT_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_SHARDED_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/adamw.h"

namespace tandem::trainer {

struct ShardFile {
  std::string name;
  int64_t size_bytes = 0;  // of the tensors
  std::string digest;      // xxh3-128 of their bytes, in hex
};

struct CheckpointUnit {
  std::string name;
  int64_t numel = 0;
  int64_t padded_numel = 0;

  bool operator==(const CheckpointUnit&) const = default;
};

struct CheckpointManifest {
  std::string architecture;
  int num_ranks = 0;
  int64_t policy_version = 0;
  int64_t step = 0;
  int64_t optimizer_steps = 0;
  std::string driver_state;   // bytes
  std::string last_response;  // bytes
  std::vector<CheckpointUnit> units;
  std::vector<ShardFile> files;  // by rank
};

// What the manifest says of the model's units.
std::vector<CheckpointUnit> DescribeUnits(ShardedModel& model);

absl::Status WriteManifest(const std::string& folder, const CheckpointManifest& manifest);
// NOT_FOUND, INVALID_ARGUMENT (no manifest of ours), with the file and key.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder);

// FAILED_PRECONDITION, with UnloadedParams where units differ, where the checkpoint is of another
// number of ranks or another model.
absl::Status CheckManifest(const CheckpointManifest& manifest, const std::string& folder,
                           int num_ranks, ShardedModel& model);

// Writes this rank's masters and moments to `folder`.
absl::StatusOr<ShardFile> WriteShard(const std::string& folder, int rank, int num_ranks,
                                     ShardedModel& model, AdamW& optimizer);

// Reads the rank's file through and changes nothing: DATA_LOSS names the file that is damaged.
absl::Status VerifyShard(const std::string& folder, const CheckpointManifest& manifest, int rank,
                         ShardedModel& model);

// Replaces masters, moments and the optimizer's step count. After an error they are a mix.
absl::Status ReadShard(const std::string& folder, const CheckpointManifest& manifest, int rank,
                       ShardedModel& model, AdamW& optimizer);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_SHARDED_CHECKPOINT_H_
