#include "tools/tandem/driver/run_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folders.h"
#include "common/config/to_yaml.h"
#include "common/io/atomic_file.h"
#include "common/io/atomic_folder.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/run_id.h"
#include "tools/tandem/driver/sample_lines.h"

namespace tandem::driver {
namespace {

namespace fs = std::filesystem;

constexpr char kRollouts[] = "rollouts";
constexpr char kEvaluations[] = "evaluations";

nlohmann::json MetricsLine(int64_t step, const Metrics& metrics) {
  nlohmann::json line = nlohmann::json::object();
  line["training/global_step"] = step;
  for (const auto& [name, value] : metrics) line[name] = value;
  return line;
}

// Throws fs::filesystem_error. A folder that does not exist has nothing to remove.
void RemoveSamplesAfter(int64_t step, const fs::path& folder) {
  if (!fs::exists(folder)) return;
  std::vector<fs::path> later;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    int64_t file_step = 0;
    if (absl::SimpleAtoi(entry.path().stem().string(), &file_step) && file_step > step) {
      later.push_back(entry.path());
    }
  }
  for (const fs::path& path : later) fs::remove(path);
}

// Tells a folder from the one that replaces it; 0 if there is none.
ino_t InodeOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

// Creates the next folder previous-N.
fs::path MakePrevious(const fs::path& path) {
  int number = 1;
  while (fs::exists(path / absl::StrCat("previous-", number))) ++number;
  const fs::path previous = path / absl::StrCat("previous-", number);
  fs::create_directory(previous);
  return previous;
}

bool HasEarlierRun(const fs::path& path) {
  return fs::exists(path / "config.yaml") || fs::exists(path / "metrics.jsonl");
}

// Whether the user may have meant to continue it.
std::string HowItContinues(const fs::path& path) {
  return checkpoint::ListCheckpoints((path / "checkpoints").string()).empty()
             ? "(it has no checkpoint from which it could continue)"
             : "(--resume would have continued that run)";
}

absl::Status CannotPrepare(const std::string& path, const fs::filesystem_error& error) {
  return absl::PermissionDeniedError(
      absl::StrCat("run_dir ", path, " cannot be prepared: ", error.what()));
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Open(const config::v1::RunConfig& config,
                                          const Options& options) {
  // The trainer's ranks may run in another working directory.
  const std::string path = fs::absolute(config.run_dir()).string();
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("run_dir ", path, " cannot be created: ", error.message()));
  }
  io::FolderLock::Options lock_options;
  lock_options.note = options.note;
  lock_options.interrupted = options.interrupted;
  ASSIGN_OR_RETURN(io::FolderLock lock, io::FolderLock::Acquire(path, lock_options));
  return RunFolder(path, config::ToYaml(config), std::make_shared<io::FolderLock>(std::move(lock)),
                   options.note);
}

absl::StatusOr<RunFolder> RunFolder::Create(const config::v1::RunConfig& config,
                                            const Options& options) {
  ASSIGN_OR_RETURN(RunFolder folder, Open(config, options));
  const fs::path path(folder.path_);
  try {
    if (!HasEarlierRun(path)) {
      // Check now, not when the model is finished.
      RETURN_IF_ERROR(io::CheckReplaceable(folder.model_path(), &io::kModelFolder));
      RETURN_IF_ERROR(folder.Begin());
    } else if (options.starts_services && fs::exists(path / "logs")) {
      RETURN_IF_ERROR(folder.MoveLogsAside());
    } else {
      folder.Note(
          absl::StrCat(folder.path_,
                       " holds an earlier run; its files move into a folder previous-N after "
                       "the first step ",
                       HowItContinues(path)));
    }
  } catch (const fs::filesystem_error& error) {
    return CannotPrepare(folder.path_, error);
  }
  return folder;
}

absl::Status RunFolder::MoveLogsAside() {
  const fs::path path(path_);
  if (has_begun_ || !previous_.empty() || !fs::exists(path / "logs")) return absl::OkStatus();
  try {
    previous_ = MakePrevious(path);
    fs::rename(path / "logs", previous_ / "logs");
  } catch (const fs::filesystem_error& error) {
    return CannotPrepare(path_, error);
  }
  Note(absl::StrCat(path_, " holds an earlier run: moved its logs to ", previous_.string(),
                    "; the rest follows after the first step ", HowItContinues(path)));
  return absl::OkStatus();
}

absl::StatusOr<RunFolder> RunFolder::Reopen(const config::v1::RunConfig& config,
                                            const Options& options) {
  ASSIGN_OR_RETURN(RunFolder folder, Open(config, options));
  const fs::path path(folder.path_);
  RETURN_IF_ERROR(io::CheckReplaceable(folder.model_path(), &io::kModelFolder));
  for (const char* name : {"", "checkpoints", kRollouts, kEvaluations, "logs"}) {
    RETURN_IF_ERROR(checkpoint::RemoveUnfinished((path / name).string()));
  }
  try {
    fs::create_directories(path / "rollouts");
    fs::create_directories(path / "logs");
  } catch (const fs::filesystem_error& error) {
    return CannotPrepare(folder.path_, error);
  }
  ASSIGN_OR_RETURN(folder.metrics_, io::JsonlWriter::Open(folder.metrics_path()));
  folder.has_begun_ = true;
  return folder;
}

absl::Status RunFolder::MoveEarlierRunAside() {
  const fs::path path(path_);
  if (!HasEarlierRun(path)) return absl::OkStatus();
  // Moves the files that HasEarlierRun() checks last, so that an interrupted move is repeated.
  std::vector<std::string> names = {"run_id",     "checkpoints",   kRollouts,       kEvaluations,
                                    "model",      "best",          "best.json",     "tensorboard",
                                    "trace.json", "updates.jsonl", "metrics.jsonl", "config.yaml"};
  if (previous_.empty()) {
    previous_ = MakePrevious(path);
    names.insert(names.begin(), "logs");
  }
  for (const std::string& name : names) {
    if (fs::exists(path / name)) fs::rename(path / name, previous_ / name);
  }
  Note(absl::StrCat("moved the files of the earlier run to ", previous_.string()));
  return absl::OkStatus();
}

void RunFolder::Note(const std::string& text) const {
  if (note_) note_(text);
}

absl::Status RunFolder::Begin() {
  if (has_begun_) return absl::OkStatus();
  RETURN_IF_ERROR(Check());
  const fs::path path(path_);
  try {
    RETURN_IF_ERROR(MoveEarlierRunAside());
    fs::create_directories(path / "rollouts");
    fs::create_directories(path / "logs");
  } catch (const fs::filesystem_error& error) {
    return CannotPrepare(path_, error);
  }
  RETURN_IF_ERROR(io::WriteFileAtomically((path / "config.yaml").string(), config_yaml_));
  ASSIGN_OR_RETURN(metrics_, io::JsonlWriter::Open(metrics_path()));
  has_begun_ = true;
  const Kept kept = std::exchange(kept_, {});
  if (!kept.run_id.empty()) {
    RETURN_IF_ERROR(KeepRunId(kept.run_id));
  }
  for (const auto& [step, metrics] : kept.metrics) RETURN_IF_ERROR(WriteMetrics(step, metrics));
  for (const nlohmann::json& line : kept.updates) RETURN_IF_ERROR(AddUpdate(line));
  for (const auto& [key, text] : kept.samples) {
    RETURN_IF_ERROR(AddSamples(key.first, key.second, text));
  }
  return absl::OkStatus();
}

absl::Status RunFolder::KeepRunId(const std::string& id) {
  if (has_begun_) return WriteRunId(path_, id);
  kept_.run_id = id;
  return absl::OkStatus();
}

absl::Status RunFolder::ReserveModelSpace(int64_t size_bytes, bool keeps_best) {
  RETURN_IF_ERROR(Check());
  ASSIGN_OR_RETURN(io::SpaceReserve space,
                   io::SpaceReserve::Take(path_, size_bytes, "the final model"));
  model_space_.emplace(std::move(space));
  best_bytes_ = keeps_best ? size_bytes : 0;
  return ReserveBestSpace();
}

absl::Status RunFolder::ReserveBestSpace() {
  if (best_bytes_ == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(io::SpaceReserve space,
                   io::SpaceReserve::Take(path_, best_bytes_, "the best model"));
  best_space_.emplace(std::move(space));
  return absl::OkStatus();
}

absl::Status RunFolder::SaveBest(const BestStep& best, const std::function<absl::Status()>& save) {
  best_space_.reset();
  const std::optional<BestStep> before = ReadBest();
  const ino_t folder = InodeOf(best_path());
  // Without the file nobody takes the new model for one of the earlier step, if we are killed here.
  std::error_code ignored;
  fs::remove(best_json_path(), ignored);
  absl::Status saved = save();
  if (saved.ok()) {
    saved = WriteBest(best);
  } else if (before.has_value() && InodeOf(best_path()) == folder) {
    saved.Update(WriteBest(*before));  // a failed save leaves the earlier model
  }
  if (const absl::Status reserved = ReserveBestSpace(); !reserved.ok()) {
    Note(absl::StrCat("the next best model may not fit: ", reserved.message()));
  }
  return saved;
}

absl::Status RunFolder::WriteBest(const BestStep& best) const {
  const nlohmann::json line = {{"step", best.step}, {"metric", best.metric}, {"value", best.value}};
  return io::WriteFileAtomically(best_json_path(), io::ToJsonLine(line));
}

std::optional<BestStep> RunFolder::ReadBest() const {
  if (!has_begun_ || !fs::exists(best_path()) || !fs::exists(best_json_path())) return std::nullopt;
  std::optional<BestStep> best;
  const absl::Status read = io::ForEachJsonLine(
      best_json_path(),
      [&best](const io::JsonFields& row) -> absl::Status {
        BestStep line;
        ASSIGN_OR_RETURN(line.step, row.Int("step"));
        ASSIGN_OR_RETURN(line.metric, row.String("metric"));
        ASSIGN_OR_RETURN(line.value, row.Double("value"));
        best = std::move(line);
        return absl::OkStatus();
      },
      io::kRunFile);
  return read.ok() ? best : std::nullopt;
}

absl::Status RunFolder::CheckModelSpace() const {
  return model_space_.has_value() ? model_space_->Check() : absl::OkStatus();
}

absl::StatusOr<std::vector<nlohmann::json>> RunFolder::Truncate(const v1::DriverState& state) {
  const int64_t step = state.step();
  const Metrics metrics_of_step(state.metrics().begin(), state.metrics().end());
  if (!has_begun_) {
    kept_.metrics.emplace_back(step, metrics_of_step);
    return std::vector<nlohmann::json>{MetricsLine(step, metrics_of_step)};
  }
  RETURN_IF_ERROR(Check());
  RETURN_IF_ERROR(io::WriteFileAtomically(path_ + "/config.yaml", config_yaml_));
  // Metrics last: as long as a later checkpoint exists, its lines do too.
  try {
    RemoveSamplesAfter(step, path_ + "/" + kRollouts);
    RemoveSamplesAfter(step, path_ + "/" + kEvaluations);
    MoveLaterModelsAside(step);
  } catch (const fs::filesystem_error& error) {
    return absl::PermissionDeniedError(
        absl::StrCat("run_dir ", path_, " cannot be truncated to step ", step, ": ", error.what()));
  }
  RETURN_IF_ERROR(TruncateUpdates(step));
  std::vector<nlohmann::json> kept;
  std::string text;
  bool has_step = false;
  RETURN_IF_ERROR(io::ForEachJsonLine(
      metrics_path(),
      [&](const io::JsonFields& row) -> absl::Status {
        ASSIGN_OR_RETURN(const int64_t row_step, row.Int("training/global_step"));
        if (row_step > step || (row_step == step && has_step)) return absl::OkStatus();
        has_step = has_step || row_step == step;
        kept.push_back(row.json());
        text += io::ToJsonLine(row.json());
        return absl::OkStatus();
      },
      io::kRunFile));
  if (!has_step) {
    kept.push_back(MetricsLine(step, metrics_of_step));
    text += io::ToJsonLine(kept.back());
  }
  RETURN_IF_ERROR(io::WriteFileAtomically(metrics_path(), text));
  ASSIGN_OR_RETURN(metrics_, io::JsonlWriter::Open(metrics_path()));
  // Rewrite the events: the later steps would appear twice.
  std::error_code ignored;
  fs::remove_all(path_ + "/tensorboard", ignored);
  events_.reset();
  for (const nlohmann::json& line : kept) {
    Metrics metrics;
    for (const auto& [name, value] : line.items()) {
      if (value.is_number() && name != "training/global_step") metrics[name] = value;
    }
    RETURN_IF_ERROR(WriteEvent(line["training/global_step"], metrics));
  }
  return kept;
}

void RunFolder::MoveLaterModelsAside(int64_t step) {
  fs::path previous;
  const auto move = [&](const fs::path& from, const fs::path& folder) {
    if (previous.empty()) previous = MakePrevious(path_);
    fs::create_directories(previous / folder);
    fs::rename(from, previous / folder / from.filename());
  };
  for (const auto& found : checkpoint::ListCheckpoints(path_ + "/checkpoints")) {
    if (found.step <= step) break;
    move(found.path, "checkpoints");
  }
  if (!previous.empty()) {
    Note(absl::StrCat("moved the checkpoints after step ", step, " to ",
                      (previous / "checkpoints").string()));
  }
  if (!fs::exists(best_path())) return;
  const std::optional<BestStep> best = ReadBest();
  if (best.has_value() && best->step <= step) return;
  move(best_path(), "");
  if (fs::exists(best_json_path())) move(best_json_path(), "");
  Note(absl::StrCat("moved the best model, of ",
                    best.has_value() ? absl::StrCat("step ", best->step) : "an unknown step",
                    ", to ", (previous / "best").string(), ": the run resumes after step ", step));
}

absl::Status RunFolder::TruncateUpdates(int64_t step) {
  if (!fs::exists(updates_path())) return absl::OkStatus();
  std::string text;
  RETURN_IF_ERROR(io::ForEachJsonLine(
      updates_path(),
      [&](const io::JsonFields& row) -> absl::Status {
        ASSIGN_OR_RETURN(const int64_t row_step, row.Int("step"));
        if (row_step <= step) text += io::ToJsonLine(row.json());
        return absl::OkStatus();
      },
      io::kRunFile));
  updates_.reset();
  return io::WriteFileAtomically(updates_path(), text);
}

absl::Status RunFolder::WriteUpdate(int64_t step,
                                    const trainer::v1::PublishWeightsResponse& update) {
  nlohmann::json links = nlohmann::json::array();
  for (const trainer::v1::UpdateLink& link : update.links()) {
    links.push_back({{"from", link.from()},
                     {"to", link.to()},
                     {"bytes", link.size_bytes()},
                     {"seconds", link.seconds()},
                     {"transport", link.transport()}});
  }
  nlohmann::json line = {{"step", step},
                         {"policy_version", update.policy_version()},
                         {"seconds", update.seconds()},
                         {"sent_bytes", update.sent_bytes()},
                         {"links", std::move(links)}};
  if (has_begun_) return AddUpdate(line);
  kept_.updates.push_back(std::move(line));
  return absl::OkStatus();
}

absl::Status RunFolder::AddUpdate(const nlohmann::json& line) {
  RETURN_IF_ERROR(Check());
  if (!updates_.has_value()) {
    ASSIGN_OR_RETURN(updates_, io::JsonlWriter::Open(updates_path()));
  }
  return updates_->Append(line);
}

std::string RunFolder::checkpoint_path(int64_t step) const {
  return absl::StrCat(path_, "/checkpoints/", checkpoint::CheckpointName(step));
}

absl::Status RunFolder::WriteMetrics(int64_t step, const Metrics& metrics) {
  if (!has_begun_) {
    kept_.metrics.emplace_back(step, metrics);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Check());
  RETURN_IF_ERROR(metrics_->Append(MetricsLine(step, metrics)));
  return WriteEvent(step, metrics);
}

absl::Status RunFolder::SyncMetrics() {
  RETURN_IF_ERROR(Check());
  return metrics_.has_value() ? metrics_->Sync() : absl::OkStatus();
}

absl::Status RunFolder::WriteEvent(int64_t step, const Metrics& metrics) {
  if (!events_.has_value()) {
    ASSIGN_OR_RETURN(events_, EventFile::Create(path_ + "/tensorboard"));
  }
  return events_->Append(absl::Now(), step, metrics);
}

absl::Status RunFolder::WriteRollouts(int64_t step, const std::vector<Group>& groups,
                                      double temperature, int64_t version_shift) {
  return KeepSamples(kRollouts, step, SampleLines(step, groups, temperature, version_shift));
}

absl::Status RunFolder::WriteEvaluation(int64_t step, const std::vector<Group>& groups,
                                        double temperature, int64_t version_shift) {
  return KeepSamples(kEvaluations, step, SampleLines(step, groups, temperature, version_shift));
}

absl::Status RunFolder::KeepSamples(const std::string& folder, int64_t step, std::string text) {
  if (has_begun_) return AddSamples(folder, step, text);
  kept_.samples[{folder, step}] = std::move(text);
  return absl::OkStatus();
}

absl::Status RunFolder::AddSamples(const std::string& folder, int64_t step,
                                   const std::string& text) {
  RETURN_IF_ERROR(Check());
  const std::string path = absl::StrCat(path_, "/", folder);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat(path, " cannot be created: ", error.message()));
  }
  return io::WriteFileAtomically(absl::StrCat(path, "/", step, ".jsonl"), text);
}

}  // namespace tandem::driver
