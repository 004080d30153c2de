// RunFolder: the files of a run.
//
//   run_dir/config.yaml        the resolved configuration
//   run_dir/metrics.jsonl      one object per step, verl's metric names
//   run_dir/updates.jsonl      one object per weight update: bytes and seconds of each link
//   run_dir/tensorboard/       the metrics for TensorBoard
//   run_dir/rollouts/N.jsonl   the samples of step N
//   run_dir/evaluations/N.jsonl   the samples of the evaluation after step N, in the same format
//   run_dir/images/            images that the run fetched, or its episodes saw (image_store.h)
//   run_dir/logs/              logs of the processes, and their configuration
//   run_dir/checkpoints/       sharded checkpoints
//   run_dir/model/             the trained model, a Hugging Face folder
//   run_dir/best/              the model of the best step, and best.json: trainer.save_best
//   run_dir/run_id             the run's id, see run_id.h
//   run_dir/run.lock           while a run is active: the process that writes here
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

// The contents of run_dir/best.json: the step whose model is in run_dir/best.
struct BestStep {
  int64_t step = 0;
  std::string metric;  // trainer.save_best
  double value = 0;    // of the metric
};

// Used by one thread. Holds the folder's lock (io::FolderLock), so one run at a time writes here;
// every write first checks that the folder still exists and is still this run's.
class RunFolder {
 public:
  struct Options {
    // This run starts its own services, which write into logs/ at once: MoveLogsAside() immediately.
    bool starts_services = false;
    // `note` reports a lock that is taken over, see io::FolderLock, and files that are moved into
    // previous-N; `interrupted` is polled while waiting for another process's lock.
    std::function<void(const std::string&)> note;
    std::function<bool()> interrupted;
  };

  // Creates and locks the folder for a run that begins with step 1. If an earlier run left files,
  // they stay until Begin(), and this run's writes until then are kept in memory. Otherwise the run
  // begins at once. FAILED_PRECONDITION if another process holds the folder, or if the run may not
  // replace the existing `model`.
  static absl::StatusOr<RunFolder> Create(const config::v1::RunConfig& config,
                                          const Options& options);
  static absl::StatusOr<RunFolder> Create(const config::v1::RunConfig& config) {
    return Create(config, Options());
  }

  // Locks the folder of a run that resumes. Keeps its files, except partial writes of a killed
  // process.
  static absl::StatusOr<RunFolder> Reopen(const config::v1::RunConfig& config,
                                          const Options& options);
  static absl::StatusOr<RunFolder> Reopen(const config::v1::RunConfig& config) {
    return Reopen(config, Options());
  }

  // Call before processes of this run write into logs/, and once nothing refuses the run any more:
  // moves an earlier run's logs into previous-N, where its other files follow in Begin().
  absl::Status MoveLogsAside();

  // Call once the trainer has accepted a step: from then on the folder is this run's. Moves an
  // earlier run's files into a subfolder previous-N, never overwriting, and writes the
  // configuration and the writes kept in memory. Further calls change nothing.
  absl::Status Begin();

  // Stores the run's id in the folder (see run_id.h): at once, or in Begin().
  absl::Status KeepRunId(const std::string& id);
  bool has_begun() const { return has_begun_; }

  // Truncates the folder to the state's step: removes later lines of metrics.jsonl and
  // updates.jsonl and later files of rollouts/ and evaluations/, moves later checkpoints, and a best
  // model of a later step, into previous-N, adds the step's own line if it was lost, and rewrites config.yaml. Returns the
  // remaining lines of metrics.jsonl. If the run has not begun, only adds the step's line.
  absl::StatusOr<std::vector<nlohmann::json>> Truncate(const v1::DriverState& state);

  // Reserves disk space for the model until ReleaseModelSpace(), and with `keeps_best` as much for
  // the best one. RESOURCE_EXHAUSTED if there is too little.
  absl::Status ReserveModelSpace(int64_t size_bytes, bool keeps_best = false);
  // RESOURCE_EXHAUSTED if the file system could not reserve the space and it is now used up.
  absl::Status CheckModelSpace() const;
  void ReleaseModelSpace() { model_space_.reset(); }
  // Calls `save`, which replaces run_dir/best as a whole, in the space reserved for it, or fails and
  // leaves it. Then writes best.json.
  // Reserves the space again, because the next best model is written beside this one; notes it if
  // there is too little.
  absl::Status SaveBest(const BestStep& best, const std::function<absl::Status()>& save);
  // The step of this run whose model is in run_dir/best; nullopt if there is none.
  std::optional<BestStep> ReadBest() const;

  // OK while the folder exists and is this run's; see io::FolderLock::Check().
  absl::Status Check() const { return lock_->Check(); }
  std::shared_ptr<const io::FolderLock> lock() const { return lock_; }

  const std::string& path() const { return path_; }
  std::string model_path() const { return path_ + "/model"; }
  std::string best_path() const { return path_ + "/best"; }
  std::string best_json_path() const { return path_ + "/best.json"; }
  std::string checkpoint_path(int64_t step) const;
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string updates_path() const { return path_ + "/updates.jsonl"; }

  // Appends a line to metrics.jsonl, with `step` as training/global_step, and a TensorBoard event.
  absl::Status WriteMetrics(int64_t step, const Metrics& metrics);

  // Makes the lines of metrics.jsonl durable.
  absl::Status SyncMetrics();

  // Appends a line to updates.jsonl with `step`, the current step: 0 before the first.
  absl::Status WriteUpdate(int64_t step, const trainer::v1::PublishWeightsResponse& update);

  // Writes one line per sample, in the format that `tandem replay` reads. Subtracts `version_shift`
  // from the trainer's version numbers; see VersionShift().
  absl::Status WriteRollouts(int64_t step, const std::vector<Group>& groups, double temperature,
                             int64_t version_shift = 0);
  // Writes the samples of an evaluation after `step`, likewise; 0 is before training.
  absl::Status WriteEvaluation(int64_t step, const std::vector<Group>& groups, double temperature,
                               int64_t version_shift = 0);

 private:
  RunFolder(std::string path, std::string config_yaml, std::shared_ptr<io::FolderLock> lock,
            std::function<void(const std::string&)> note)
      : path_(std::move(path)),
        config_yaml_(std::move(config_yaml)),
        lock_(std::move(lock)),
        note_(std::move(note)) {}
  static absl::StatusOr<RunFolder> Open(const config::v1::RunConfig& config,
                                        const Options& options);
  absl::Status MoveEarlierRunAside();
  absl::Status ReserveBestSpace();
  absl::Status WriteBest(const BestStep& best) const;
  void Note(const std::string& text) const;
  absl::Status AddUpdate(const nlohmann::json& line);
  // `folder` is "rollouts" or "evaluations".
  absl::Status KeepSamples(const std::string& folder, int64_t step, std::string text);
  absl::Status AddSamples(const std::string& folder, int64_t step, const std::string& text);
  absl::Status WriteEvent(int64_t step, const Metrics& metrics);
  absl::Status TruncateUpdates(int64_t step);
  // Throws std::filesystem::filesystem_error.
  void MoveLaterModelsAside(int64_t step);

  // Writes that wait in memory for Begin().
  struct Kept {
    std::string run_id;
    std::vector<std::pair<int64_t, Metrics>> metrics;
    std::vector<nlohmann::json> updates;
    std::map<std::pair<std::string, int64_t>, std::string> samples;  // by folder and step
  };

  std::string path_;
  std::string config_yaml_;
  std::shared_ptr<io::FolderLock> lock_;
  std::function<void(const std::string&)> note_;  // may be null
  bool has_begun_ = false;
  Kept kept_;
  std::filesystem::path previous_;  // holds the earlier run's logs; empty: still in place
  std::optional<io::SpaceReserve> model_space_;
  std::optional<io::SpaceReserve> best_space_;
  int64_t best_bytes_ = 0;                  // to reserve; 0: no best model is kept
  std::optional<io::JsonlWriter> metrics_;  // once the run has begun
  std::optional<EventFile> events_;         // from the first line on
  std::optional<io::JsonlWriter> updates_;  // likewise
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_
