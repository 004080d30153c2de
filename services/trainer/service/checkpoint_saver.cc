#include "services/trainer/service/checkpoint_saver.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folders.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

// Files appear at the end of long writes; nothing signals it between machines.
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kWriteTimeout = absl::Hours(2);

}  // namespace

CheckpointSaver::CheckpointSaver(RunOnRanks run, int64_t keep_last)
    : run_(std::move(run)), keep_last_(keep_last) {}

CheckpointSaver::~CheckpointSaver() {
  Cancel(absl::CancelledError("the trainer stopped"));
  if (thread_.joinable()) thread_.join();
}

absl::Status CheckpointSaver::Begin(const std::string& path, Contents contents) {
  if (in_flight_) return absl::InternalError("a checkpoint is still being written");
  ASSIGN_OR_RETURN(io::AtomicFolder folder,
                   io::AtomicFolder::Create(path, &checkpoint::kCheckpointFolder));
  const absl::StatusOr<std::vector<RankResult>> results =
      run_(Opcode::kSnapshot, folder.temporary_path());
  if (!results.ok()) {
    // Ranks that have started must finish before the folder is removed.
    run_(Opcode::kSnapshotState, "wait").status().IgnoreError();
    return results.status();
  }
  for (const RankResult& result : *results) {
    if (!result.payload.empty()) contents.manifest.shards.push_back(result.payload);
  }
  path_ = path;
  step_ = contents.manifest.step;
  driver_state_ = contents.driver_state;
  write_seconds_ = 0;
  in_flight_ = true;
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = absl::OkStatus();
    done_ = false;
  }
  thread_ =
      std::thread([this, folder = std::move(folder), contents = std::move(contents)]() mutable {
        Complete(std::move(folder), std::move(contents));
      });
  return absl::OkStatus();
}

void CheckpointSaver::Complete(io::AtomicFolder folder, Contents contents) {
  absl::StatusOr<int64_t> size_bytes = 0;
  {
    io::AtomicFolder own = std::move(folder);  // removed with this scope if incomplete
    size_bytes = Catch([&] { return TryComplete(own, contents); });
  }
  absl::MutexLock lock(&mu_);
  size_bytes_ = std::move(size_bytes);
  done_ = true;
}

absl::StatusOr<int64_t> CheckpointSaver::TryComplete(io::AtomicFolder& folder, Contents& contents) {
  RETURN_IF_ERROR(AwaitFiles(folder, contents.manifest));
  const std::string& temporary = folder.temporary_path();
  int64_t size_bytes = 0;
  for (const std::string& shard : contents.manifest.shards) {
    ASSIGN_OR_RETURN(checkpoint::FileEntry entry,
                     checkpoint::DescribeFile(temporary, shard + ".json"));
    contents.manifest.files.push_back(std::move(entry));
    std::error_code error;
    const auto bytes = fs::file_size(absl::StrCat(temporary, "/", shard, ".bin"), error);
    if (error) {
      return absl::ErrnoToStatus(error.value(), absl::StrCat(temporary, "/", shard, ".bin"));
    }
    size_bytes += static_cast<int64_t>(bytes);
  }
  RETURN_IF_ERROR(checkpoint::WriteSideFile(temporary, checkpoint::kDriverStateFile,
                                            contents.driver_state, contents.manifest));
  RETURN_IF_ERROR(checkpoint::WriteSideFile(temporary, checkpoint::kLastResponseFile,
                                            contents.last_response, contents.manifest));
  RETURN_IF_ERROR(checkpoint::WriteManifest(temporary, contents.manifest));
  RETURN_IF_ERROR(folder.Commit());
  const fs::path path(folder.path());
  if (path.filename() == checkpoint::CheckpointName(contents.manifest.step)) {
    // The new checkpoint is complete, whatever happens to old ones.
    const absl::Status removed = checkpoint::RemoveOldCheckpoints(
        path.parent_path().string(), contents.manifest.step, keep_last_);
    if (!removed.ok()) {
      telemetry::LogWarning("cannot remove an old checkpoint", {{"error", removed.message()}});
    }
  }
  return size_bytes;
}

absl::Status CheckpointSaver::AwaitFiles(const io::AtomicFolder& folder,
                                         const checkpoint::Manifest& manifest) {
  const absl::Time deadline = absl::Now() + kWriteTimeout;
  for (const std::string& shard : manifest.shards) {
    const std::string index = absl::StrCat(folder.temporary_path(), "/", shard, ".json");
    while (true) {
      std::error_code error;
      if (fs::exists(index, error)) break;
      {
        absl::MutexLock lock(&mu_);
        mu_.AwaitWithTimeout(
            absl::Condition(
                +[](absl::Status* cancelled) { return !cancelled->ok(); }, &cancelled_),
            kPollInterval);
        RETURN_IF_ERROR(cancelled_);
      }
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat(index, " has not appeared after ",
                                                        absl::FormatDuration(kWriteTimeout),
                                                        "; all ranks must share one run_dir"));
      }
    }
  }
  return absl::OkStatus();
}

void CheckpointSaver::Cancel(absl::Status reason) {
  absl::MutexLock lock(&mu_);
  if (cancelled_.ok()) cancelled_ = std::move(reason);
}

absl::StatusOr<std::optional<v1::CheckpointOutcome>> CheckpointSaver::Settle(bool wait) {
  if (!in_flight_) return std::nullopt;
  bool is_writing = false;  // some rank
  const auto ask = [this, &is_writing](bool wait) -> absl::StatusOr<absl::Status> {
    ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                     run_(Opcode::kSnapshotState, wait ? "wait" : "poll"));
    absl::Status failure;
    for (size_t rank = 0; rank < results.size(); ++rank) {
      ASSIGN_OR_RETURN(const SnapshotState state, SnapshotState::Decode(results[rank].payload));
      write_seconds_ = std::max(write_seconds_, state.seconds);
      is_writing = is_writing || state.running;
      if (!failure.ok() || state.status.ok()) continue;
      failure = absl::Status(state.status.code(),
                             absl::StrCat("trainer rank ", rank, ": ", state.status.message()));
    }
    return failure;
  };
  ASSIGN_OR_RETURN(absl::Status failure, ask(wait));
  if (!failure.ok()) {
    if (!wait) {
      // No rank may write into a folder that is being removed.
      ASSIGN_OR_RETURN(const absl::Status ignored, ask(true));
    }
    Cancel(failure);
  } else if (!wait) {
    // A rank's files may be complete just before its writer ends, which takes no other snapshot until
    // the rank has been asked again.
    if (is_writing) return std::nullopt;
    absl::MutexLock lock(&mu_);
    if (!done_) return std::nullopt;
  }
  thread_.join();
  in_flight_ = false;
  v1::CheckpointOutcome outcome;
  outcome.set_path(path_);
  outcome.set_step(step_);
  outcome.set_write_seconds(write_seconds_);
  absl::MutexLock lock(&mu_);
  if (size_bytes_.ok()) {
    outcome.set_size_bytes(*size_bytes_);
    telemetry::LogInfo(
        "checkpoint written",
        {{"path", path_}, {"step", step_}, {"bytes", *size_bytes_}, {"seconds", write_seconds_}});
  } else {
    outcome.set_error(std::string(size_bytes_.status().message()));
    outcome.set_error_code(static_cast<int>(size_bytes_.status().code()));
    telemetry::LogError("cannot write a checkpoint",
                        {{"path", path_}, {"error", size_bytes_.status().message()}});
  }
  return outcome;
}

}  // namespace tandem::trainer
