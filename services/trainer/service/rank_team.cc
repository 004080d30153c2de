#include "services/trainer/service/rank_team.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/status_conversion.h"
#include "common/telemetry/log.h"

namespace tandem::trainer {
namespace {

// After a failure, a live rank reports it within this time.
constexpr absl::Duration kReportTimeout = absl::Seconds(5);

// Codes of a rank that merely lost its peers.
bool IsConsequence(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

RankTeam::RankTeam(std::vector<std::unique_ptr<ControlLink>> links, Handler own)
    : links_(std::move(links)), own_(std::move(own)) {}

absl::StatusOr<std::vector<RankResult>> RankTeam::Run(const RankCommand& command) {
  std::vector<Trouble> lost;
  for (size_t i = 0; i < links_.size(); ++i) {
    absl::Status sent = links_[i]->SendCommand(command);
    if (!sent.ok()) lost.push_back({static_cast<int>(i) + 1, std::move(sent)});
  }
  if (!lost.empty()) return Diagnose(command.opcode, lost, {});

  std::vector<Trouble> failed;
  std::vector<RankResult> results;
  results.push_back(own_(command));
  if (results[0].fatal) failed.push_back({0, results[0].status});
  for (size_t i = 0; i < links_.size(); ++i) {
    const int rank = static_cast<int>(i) + 1;
    if (!lost.empty() || !failed.empty()) links_[i]->SetTimeout(kReportTimeout);
    absl::StatusOr<RankResult> result = links_[i]->ReceiveResult();
    if (!result.ok()) {
      lost.push_back({rank, result.status()});
      results.emplace_back();
      continue;
    }
    if (result->fatal) failed.push_back({rank, result->status});
    results.push_back(*std::move(result));
  }
  if (!lost.empty() || !failed.empty()) return Diagnose(command.opcode, lost, failed);
  return results;
}

void RankTeam::Stop() {
  for (const std::unique_ptr<ControlLink>& link : links_) {
    link->SetTimeout(kReportTimeout);
    const absl::Status sent = link->SendCommand({Opcode::kStop, ""});
    if (!sent.ok()) telemetry::LogDebug("cannot send stop to a rank", {{"error", sent.message()}});
  }
}

absl::Status RankTeam::Diagnose(Opcode opcode, const std::vector<Trouble>& lost,
                                const std::vector<Trouble>& failed) const {
  // A lost rank explains the others' errors; otherwise the rank with an error of its own does.
  const Trouble* culprit = lost.empty() ? nullptr : &lost.front();
  for (const Trouble& trouble : failed) {
    if (culprit == nullptr && !IsConsequence(trouble.status)) culprit = &trouble;
  }
  if (culprit == nullptr) culprit = &failed.front();

  std::string names;
  for (const Trouble& trouble : lost)
    absl::StrAppend(&names, names.empty() ? "" : ", ", trouble.rank);
  const bool is_lost = !lost.empty();
  if (!is_lost) names = absl::StrCat(culprit->rank);
  const char* what = !is_lost                                    ? "failed"
                     : absl::IsDeadlineExceeded(culprit->status) ? "does not respond"
                                                                 : "was lost";
  return rpc::WithReason(absl::UnavailableError(absl::StrFormat(
                             "trainer rank %s of %d %s during %s: %s. The trainer stops; restart "
                             "it and load the last checkpoint",
                             names, size(), what, Name(opcode), culprit->status.message())),
                         is_lost ? "RANK_LOST" : "RANK_FAILED",
                         {{"rank", names}, {"during", Name(opcode)}});
}

}  // namespace tandem::trainer
