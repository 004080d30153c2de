// RunFolder: what a run leaves on disk.
//
//   run_dir/config.yaml        the resolved configuration
//   run_dir/metrics.jsonl      one object a step, verl's metric names
//   run_dir/updates.jsonl      one object a weight update: what each link carried
//   run_dir/tensorboard/       the same for TensorBoard
//   run_dir/rollouts/N.jsonl   the samples of step N
//   run_dir/logs/              what the processes said
//   run_dir/checkpoints/       sharded checkpoints
//   run_dir/model/             the trained model, a Hugging Face folder
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/jsonl.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/event_file.h"

namespace tandem::driver {

using Metrics = std::map<std::string, double>;

// Used by one thread.
class RunFolder {
 public:
  // Makes the folder and writes the configuration. What an earlier run left there is moved into a
  // folder previous-N inside it, never overwritten.
  static absl::StatusOr<RunFolder> Create(const config::v1::RunConfig& config);

  // For a run that goes on: what is there stays, but for what a killed process had not finished.
  static absl::StatusOr<RunFolder> Reopen(const config::v1::RunConfig& config);

  // Puts the folder back to where it was after the state's step: later lines of metrics.jsonl and
  // of updates.jsonl and later files of rollouts/ go, later checkpoints are moved into previous-N,
  // and the step's own line is added where it was lost. Answers the lines that stay.
  absl::StatusOr<std::vector<nlohmann::json>> CutBack(const v1::DriverState& state);

  const std::string& path() const { return path_; }
  std::string model_path() const { return path_ + "/model"; }
  std::string checkpoint_path(int64_t step) const;
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string updates_path() const { return path_ + "/updates.jsonl"; }

  // Adds a line to metrics.jsonl, where `step` becomes training/global_step, and an event.
  absl::Status WriteMetrics(int64_t step, const Metrics& metrics);

  // Makes the lines durable.
  absl::Status SyncMetrics() { return metrics_.Sync(); }

  // Adds a line to updates.jsonl, with `step`, the one that is being done: 0 before the first.
  absl::Status WriteUpdate(int64_t step, const trainer::v1::PublishWeightsResponse& update);

  // One line a sample, in the form that `tandem replay` reads.
  absl::Status WriteRollouts(int64_t step, const std::vector<Group>& groups, double temperature);

 private:
  absl::Status WriteEvent(int64_t step, const Metrics& metrics);
  absl::Status CutUpdates(int64_t step);
  static absl::StatusOr<RunFolder> Prepare(const config::v1::RunConfig& config, bool reopen);
  RunFolder(std::string path, io::JsonlWriter metrics)
      : path_(std::move(path)), metrics_(std::move(metrics)) {}

  std::string path_;
  io::JsonlWriter metrics_;
  std::optional<EventFile> events_;         // from the first line on
  std::optional<io::JsonlWriter> updates_;  // likewise
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_FOLDER_H_
