// The commands that the leader sends to every rank, itself included, and a rank's results. Commands
// with collectives run on all ranks at once, in the order in which the leader sends them.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_COMMAND_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/telemetry/trace_context.h"

namespace tandem::trainer {

enum class Opcode : int64_t {
  kPing = 1,   // nothing: a heartbeat
  kTrainStep,  // TrainStepRequests, length-delimited  -> TrainStepResponse, policy_version: growth
  kComputeLogProbs,  // ComputeLogProbsRequest               -> ComputeLogProbsResponse
  kPublish,          // PublishWeightsRequest, version set   -> PublishWeightsResponse
  kDigest,           // nothing                              -> HeldDigests
  kExport,           // path of a Hugging Face folder        -> int64 size in bytes, in decimal
  kSnapshot,         // folder to write to                   -> name of the shard, or nothing
  kSnapshotState,    // "wait" for the end, or "poll"        -> SnapshotState
  kVerifyShard,      // folder to read                       -> nothing
  kReadShard,        // folder to read                       -> nothing
  kReset,            // nothing: restores the rank's initial state
  kReach,            // CheckReachRequest                    -> ProcessReport
  kProbe,            // ProbeGroupRequest of the leader      -> RankProbe
  kStop,             // the process ends
};

inline const char* Name(Opcode opcode) {
  switch (opcode) {
    case Opcode::kPing:
      return "heartbeat";
    case Opcode::kTrainStep:
      return "TrainStep";
    case Opcode::kComputeLogProbs:
      return "ComputeLogProbs";
    case Opcode::kPublish:
      return "PublishWeights";
    case Opcode::kDigest:
      return "GetWeightDigests";
    case Opcode::kExport:
      return "SaveCheckpoint (Hugging Face)";
    case Opcode::kSnapshot:
      return "SaveCheckpoint (snapshot)";
    case Opcode::kSnapshotState:
      return "SaveCheckpoint (state)";
    case Opcode::kVerifyShard:
      return "LoadCheckpoint (verify)";
    case Opcode::kReadShard:
      return "LoadCheckpoint (read)";
    case Opcode::kReset:
      return "LoadCheckpoint (initial state)";
    case Opcode::kReach:
      return "CheckReach";
    case Opcode::kProbe:
      return "ProbeGroup";
    case Opcode::kStop:
      return "stop";
  }
  return "unknown command";
}

struct RankCommand {
  Opcode opcode = Opcode::kPing;
  std::string payload;
  // The call that the command belongs to, in traces; invalid if there is none.
  telemetry::TraceContext trace = telemetry::CurrentTraceContext();
};

// Progress of a rank's snapshot write. A failed write is no failure of the rank.
struct SnapshotState {
  bool running = false;
  double seconds = 0;  // duration of the write
  absl::Status status;

  std::string Encode() const {
    return absl::StrCat(running ? 1 : 0, " ", seconds, " ", static_cast<int>(status.code()), " ",
                        status.message());
  }
  // Returns an error if `text` does not come from Encode().
  static absl::StatusOr<SnapshotState> Decode(const std::string& text);
};

struct RankResult {
  absl::Status status;
  // The rank cannot continue: its group is broken or its weights are in an unknown state.
  bool fatal = false;
  std::string payload;  // set if the status is OK
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_COMMAND_H_
