#include "services/trainer/publish/transfer_blame.h"

#include <algorithm>
#include <iterator>

#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::trainer {
namespace {

using Link = TransferReport::Link;

// Whether the report alone shows that the link into the replica is broken.
bool AccusesIncoming(const TransferReport& report) {
  if (report.link == Link::kOwn) return true;
  if (report.link != Link::kFrom) return false;
  if (!report.after_abort || report.timed_out) return true;
  // The leader's abort ends its own group and the transfers behind it, but not a replica further
  // down that is still joining its neighbours.
  return !report.joined && report.replica > 0;
}

}  // namespace

std::optional<TransferReport> ParseTransferReport(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  if (!info.has_value() || info->reason() != "TRANSFER_FAILED") return std::nullopt;
  TransferReport report;
  const auto& metadata = info->metadata();
  if (const auto link = metadata.find("link"); link != metadata.end()) {
    if (link->second == "rendezvous") report.link = Link::kRendezvous;
    if (link->second == "from") report.link = Link::kFrom;
    if (link->second == "forward") report.link = Link::kForward;
    if (link->second == "own") report.link = Link::kOwn;
  }
  const auto joined = metadata.find("joined");
  report.joined = joined != metadata.end() && joined->second == "true";
  report.timed_out = absl::IsDeadlineExceeded(status);
  return report;
}

std::vector<TransferReport> Unreached(const std::vector<TransferReport>& reports) {
  std::vector<TransferReport> unreached;
  std::copy_if(reports.begin(), reports.end(), std::back_inserter(unreached),
               [](const TransferReport& report) { return report.link == Link::kRendezvous; });
  return unreached;
}

std::optional<int> BrokenLinkOfChain(const std::vector<TransferReport>& reports, int num_replicas) {
  if (num_replicas == 1) return 0;
  int feeder = -1;  // the last replica that reports a broken link to the next
  std::optional<int> first;
  for (const TransferReport& report : reports) {
    if (report.link == Link::kForward) feeder = std::max(feeder, report.replica);
    if (AccusesIncoming(report)) first = std::min(first.value_or(report.replica), report.replica);
  }
  if (feeder >= 0 && feeder + 1 < num_replicas) return std::max(first.value_or(0), feeder + 1);
  return first;
}

}  // namespace tandem::trainer
