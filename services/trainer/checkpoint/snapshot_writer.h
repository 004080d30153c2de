// SnapshotWriter: writes a rank's shards to a folder while training continues. The collective
// thread first copies the shards to host memory; a background thread writes, digests and syncs the
// copy.
//
//   RETURN_IF_ERROR(writer.Start({folder, "rank-0-of-2"}, models));   // returns with the copy made
//   ...                                                               // training continues
//   ASSIGN_OR_RETURN(double seconds, writer.Wait());
//
// Costs 12 bytes of host memory per element of the shard until the write ends.
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_SNAPSHOT_WRITER_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_SNAPSHOT_WRITER_H_

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/trainer/checkpoint/checkpointed_model.h"

namespace tandem::trainer {

struct SnapshotOptions {
  std::string folder;
  std::string name;  // of the shard: checkpoint::ShardName()
  // False on every rank of a tensor-parallel group but the first: all of them hold the tensors that
  // the group does not split, and only the first writes them.
  bool writes_whole_tensors = true;
  // False: Start() writes shards on the CPU in place, without a copy, and returns when the write
  // has ended.
  bool in_background = true;
};

// Used by the collective thread. The destructor waits for a running write.
class SnapshotWriter {
 public:
  SnapshotWriter() = default;
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;

  // INTERNAL if a write is running; RESOURCE_EXHAUSTED if memory for the copy is lacking.
  absl::Status Start(const SnapshotOptions& options, const std::vector<CheckpointedModel>& models);

  // Start() succeeded, and Wait() has not returned its result yet.
  bool started() const { return started_; }
  // The write has ended, successfully or not.
  bool done() const { return done_; }

  // Waits for the write and returns its duration in seconds. An error, such as RESOURCE_EXHAUSTED
  // for a full disk, leaves nothing behind.
  absl::StatusOr<double> Wait();

 private:
  bool started_ = false;
  std::atomic<bool> done_{false};
  std::thread thread_;
  absl::Status status_;  // written by the thread before done_
  double seconds_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_SNAPSHOT_WRITER_H_
