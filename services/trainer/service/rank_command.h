// What the leader asks of every rank, itself included, and what a rank answers. Commands that use
// collectives run on all ranks at once, in the order in which the leader sends them.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_COMMAND_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tandem::trainer {

enum class Opcode : int64_t {
  kPing = 1,   // nothing: shows that the rank is there
  kTrainStep,  // TrainStepRequests, length-delimited  -> TrainStepResponse, policy_version: growth
  kComputeLogProbs,  // ComputeLogProbsRequest               -> ComputeLogProbsResponse
  kPublish,          // PublishWeightsRequest, version set   -> PublishWeightsResponse
  kExport,           // path of a Hugging Face folder        -> int64 size in bytes, in decimal
  kWriteShard,       // folder to write to                   -> "NAME SIZE DIGEST"
  kVerifyShard,      // folder to read                       -> nothing
  kReadShard,        // folder to read                       -> nothing
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
    case Opcode::kExport:
      return "SaveCheckpoint (Hugging Face)";
    case Opcode::kWriteShard:
      return "SaveCheckpoint (sharded)";
    case Opcode::kVerifyShard:
      return "LoadCheckpoint (verify)";
    case Opcode::kReadShard:
      return "LoadCheckpoint (read)";
    case Opcode::kStop:
      return "stop";
  }
  return "unknown command";
}

struct RankCommand {
  Opcode opcode = Opcode::kPing;
  std::string payload;
};

struct RankResult {
  absl::Status status;
  // The rank cannot go on: its group is broken or its weights are in an unknown state.
  bool fatal = false;
  std::string payload;  // where the status is OK
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_COMMAND_H_
