// CheckpointSaver: the leader's part in saving. It has every rank copy its shards; while training
// continues, it waits for their files, adds the manifest, and publishes the folder with one rename.
// Writes at most one checkpoint at a time.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_CHECKPOINT_SAVER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_CHECKPOINT_SAVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/manifest.h"
#include "common/io/atomic_folder.h"
#include "services/trainer/service/rank_command.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// Used by the collective thread. The destructor drops a checkpoint that is still being written.
class CheckpointSaver {
 public:
  using RunOnRanks =
      std::function<absl::StatusOr<std::vector<RankResult>>(Opcode, std::string payload)>;

  // Keeps the `keep_last` newest checkpoints beside a new one; 0: all.
  CheckpointSaver(RunOnRanks run, int64_t keep_last);
  ~CheckpointSaver();

  // Saved beside the ranks' shards.
  struct Contents {
    checkpoint::Manifest manifest;  // without files
    std::string driver_state;
    std::string last_response;
  };

  // Returns when every rank has its copy. INTERNAL if a checkpoint is being written;
  // FAILED_PRECONDITION if the path holds files but no checkpoint. An error leaves nothing behind.
  absl::Status Begin(const std::string& path, Contents contents);

  bool in_flight() const { return in_flight_; }
  // Whether the checkpoint in flight, written or not, is this one.
  bool HasBegun(const std::string& path, int64_t step, const std::string& driver_state) const {
    return in_flight_ && path_ == path && step_ == step && driver_state_ == driver_state;
  }

  // Returns the outcome of the checkpoint being written; nullopt if there is none or, without
  // `wait`, if it has not ended. An error is the team's: the trainer cannot continue.
  absl::StatusOr<std::optional<v1::CheckpointOutcome>> Settle(bool wait);

 private:
  // The commit thread: waits for the ranks' files and completes the folder.
  void Complete(io::AtomicFolder folder, Contents contents);
  absl::StatusOr<int64_t> TryComplete(io::AtomicFolder& folder, Contents& contents);
  absl::Status AwaitFiles(const io::AtomicFolder& folder, const checkpoint::Manifest& manifest);
  void Cancel(absl::Status reason);

  const RunOnRanks run_;
  const int64_t keep_last_;
  bool in_flight_ = false;
  std::string path_;
  int64_t step_ = 0;
  std::string driver_state_;
  double write_seconds_ = 0;  // the slowest rank's
  std::thread thread_;

  absl::Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<int64_t> size_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_CHECKPOINT_SAVER_H_
