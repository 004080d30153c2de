// RunFolder: what a run leaves on disk.
//
//   run_dir/config.yaml        the resolved configuration
//   run_dir/metrics.jsonl      one object a step, verl's metric names
//   run_dir/updates.jsonl      one object a weight update: what each link carried
//   run_dir/tensorboard/       the same for TensorBoard
//   run_dir/rollouts/N.jsonl   the samples of step N
//   run_dir/logs/              what the processes said, and the configuration that they were given
//   run_dir/checkpoints/       sharded checkpoints
//   run_dir/model/             the trained model, a Hugging Face folder
//   run_dir/run_id             the run's id, see run_id.h
//   run_dir/run.lock           while a run goes on: which process writes here
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/folder_lock.h"
#include "common/io/jsonl.h"
#include "common/io/space_reserve.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/event_file.h"

namespace tandem::driver {

using Metrics = std::map<std::string, double>;

// Used by one thread. Holds the folder's lock (io::FolderLock), so one run at a time writes here;
// every write first makes sure that the folder is still there and still this run's.
class RunFolder {
 public:
  struct Options {
    // This run starts its services itself, and they write into logs/ from the start: an earlier
    // run's logs are moved into previous-N at once.
    bool starts_services = false;
    // Told of a lock that is taken over, and asked while another's is watched; see io::FolderLock.
    std::function<void(const std::string&)> note;
    std::function<bool()> interrupted;
  };

  // Makes and locks the folder for a run that begins with step 1. Where an earlier run left files,
  // they stay as they are until Begin(), and what this run writes until then is kept in memory. In
  // a folder without them the run has begun. FAILED_PRECONDITION where another process holds the
  // folder, or `model` is none that the run may replace.
  static absl::StatusOr<RunFolder> Create(const config::v1::RunConfig& config,
                                          const Options& options);
  static absl::StatusOr<RunFolder> Create(const config::v1::RunConfig& config) {
    return Create(config, Options());
  }

  // Locks the folder of a run that goes on: what is there stays, but for what a killed process had
  // not finished.
  static absl::StatusOr<RunFolder> Reopen(const config::v1::RunConfig& config,
                                          const Options& options);
  static absl::StatusOr<RunFolder> Reopen(const config::v1::RunConfig& config) {
    return Reopen(config, Options());
  }

  // Call once the trainer has accepted a step: the folder is this run's from here on. Moves what an
  // earlier run left into a folder previous-N inside it, never overwriting, and writes the
  // configuration and what was kept in memory. Changes nothing when called again.
  absl::Status Begin();

  // Keeps the run's id in the folder (see run_id.h): at once, or from Begin() on.
  absl::Status KeepRunId(const std::string& id);
  bool has_begun() const { return has_begun_; }

  // Puts the folder back to where it was after the state's step: later lines of metrics.jsonl and
  // of updates.jsonl and later files of rollouts/ go, later checkpoints are moved into previous-N,
  // the step's own line is added where it was lost, and config.yaml is this run's. Answers the
  // lines that stay. A run that has not begun has nothing to put back: it gets the step's line.
  absl::StatusOr<std::vector<nlohmann::json>> CutBack(const v1::DriverState& state);

  // Keeps disk space for the model until ReleaseModelSpace(). RESOURCE_EXHAUSTED where it is not
  // there.
  absl::Status ReserveModelSpace(int64_t size_bytes);
  // RESOURCE_EXHAUSTED where the file system could not keep the space and it is gone now.
  absl::Status CheckModelSpace() const;
  void ReleaseModelSpace() { model_space_.reset(); }

  // OK while the folder is there and this run's; see io::FolderLock::Check().
  absl::Status Check() const { return lock_->Check(); }
  std::shared_ptr<const io::FolderLock> lock() const { return lock_; }

  const std::string& path() const { return path_; }
  std::string model_path() const { return path_ + "/model"; }
  std::string checkpoint_path(int64_t step) const;
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string updates_path() const { return path_ + "/updates.jsonl"; }

  // Adds a line to metrics.jsonl, where `step` becomes training/global_step, and an event.
  absl::Status WriteMetrics(int64_t step, const Metrics& metrics);

  // Makes the lines durable.
  absl::Status SyncMetrics();

  // Adds a line to updates.jsonl, with `step`, the one that is being done: 0 before the first.
  absl::Status WriteUpdate(int64_t step, const trainer::v1::PublishWeightsResponse& update);

  // One line a sample, in the form that `tandem replay` reads.
  absl::Status WriteRollouts(int64_t step, const std::vector<Group>& groups, double temperature);

 private:
  RunFolder(std::string path, std::string config_yaml, std::shared_ptr<io::FolderLock> lock)
      : path_(std::move(path)), config_yaml_(std::move(config_yaml)), lock_(std::move(lock)) {}
  static absl::StatusOr<RunFolder> Open(const config::v1::RunConfig& config,
                                        const Options& options);
  absl::Status SetAside();
  absl::Status AddUpdate(const nlohmann::json& line);
  absl::Status AddRollouts(int64_t step, const std::string& text);
  absl::Status WriteEvent(int64_t step, const Metrics& metrics);
  absl::Status CutUpdates(int64_t step);

  // What a run wrote before it has begun.
  struct Kept {
    std::string run_id;
    std::vector<std::pair<int64_t, Metrics>> metrics;
    std::vector<nlohmann::json> updates;
    std::map<int64_t, std::string> rollouts;
  };

  std::string path_;
  std::string config_yaml_;
  std::shared_ptr<io::FolderLock> lock_;
  bool has_begun_ = false;
  Kept kept_;
  std::filesystem::path previous_;  // where the earlier run's logs are; empty: still in place
  std::optional<io::SpaceReserve> model_space_;
  std::optional<io::JsonlWriter> metrics_;  // once the run has begun
  std::optional<EventFile> events_;         // from the first line on
  std::optional<io::JsonlWriter> updates_;  // likewise
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_
