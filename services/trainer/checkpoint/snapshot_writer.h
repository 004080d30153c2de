// SnapshotWriter: writes a rank's shards to a folder while training goes on. The shards are copied
// to host memory first, at one moment on the collective thread; a thread of its own writes, digests
// and syncs the copy.
//
//   RETURN_IF_ERROR(writer.Start({folder, "rank-0-of-2"}, models));   // returns with the copy made
//   ...                                                               // training goes on
//   ASSIGN_OR_RETURN(double seconds, writer.Wait());
//
// Costs 12 bytes of host memory for each element of the shard until the end of the write.
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
  // False on the ranks of a tensor-parallel group but the first: tensors that the group does not
  // split are theirs as well, and are written once.
  bool writes_whole_tensors = true;
  // False: the shards are written as they rest, without a copy, and the write is over when Start()
  // returns.
  bool in_background = true;
};

// Used by the collective thread. The destructor waits for a write under way.
class SnapshotWriter {
 public:
  SnapshotWriter() = default;
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;

  // INTERNAL where one is being written; RESOURCE_EXHAUSTED where memory for the copy is lacking.
  absl::Status Start(const SnapshotOptions& options, const std::vector<CheckpointedModel>& models);

  // A write has been started, and Wait() has not told of its end yet.
  bool started() const { return started_; }
  // It is over, well or not.
  bool done() const { return done_; }

  // The seconds that the write took. An error, RESOURCE_EXHAUSTED for a full disk, left nothing
  // behind.
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
