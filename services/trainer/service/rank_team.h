// RankTeam: runs the leader's commands on all ranks, and finds the rank at fault when one fails.
//
// Owned by the leader and used by its collective thread. After an error of Run() the team is
// unusable: the process reports and exits.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_RANK_TEAM_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_RANK_TEAM_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/trainer/service/control_link.h"
#include "services/trainer/service/rank_command.h"

namespace tandem::trainer {

class RankTeam {
 public:
  using Handler = std::function<RankResult(const RankCommand&)>;

  // links[i] leads to rank i + 1; `own` runs a command on this rank. If its result is fatal, `own`
  // makes the other ranks' collectives fail, so that they report instead of waiting.
  RankTeam(std::vector<std::unique_ptr<ControlLink>> links, Handler own);

  int size() const { return static_cast<int>(links_.size()) + 1; }

  // Runs the command on every rank and returns the results by rank. UNAVAILABLE with ErrorInfo
  // (RANK_LOST or RANK_FAILED, rank) names the rank that is gone, does not answer, or cannot
  // continue.
  absl::StatusOr<std::vector<RankResult>> Run(const RankCommand& command);

  // Sends stop to the other ranks, as far as they still listen.
  void Stop();

 private:
  struct Trouble {
    int rank;
    absl::Status status;
  };
  absl::Status Diagnose(Opcode opcode, const std::vector<Trouble>& lost,
                        const std::vector<Trouble>& failed) const;

  std::vector<std::unique_ptr<ControlLink>> links_;
  const Handler own_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_RANK_TEAM_H_
