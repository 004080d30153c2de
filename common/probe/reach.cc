#include "common/probe/reach.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host/file_descriptor.h"
#include "common/host/run_on_threads.h"
#include "common/net/host_port.h"
#include "common/net/socket_address.h"
#include "common/probe/connect_socket.h"
#include "common/rpc/channel.h"

namespace tandem::probe {
namespace {

using diagnostics::v1::ReachOutcome;
using diagnostics::v1::ReachReport;

constexpr size_t kAtOnce = 32;
// A channel that just failed reconnects only after this.
constexpr absl::Duration kReconnectFor = absl::Seconds(1);
constexpr absl::Duration kReconnectPause = absl::Milliseconds(100);

ReachOutcome OutcomeOf(int error) {
  switch (error) {
    case 0:
      return diagnostics::v1::REACH_OUTCOME_REACHED;
    case ECONNREFUSED:
    case ECONNRESET:
      return diagnostics::v1::REACH_OUTCOME_REFUSED;
    case ETIMEDOUT:
      return diagnostics::v1::REACH_OUTCOME_TIMED_OUT;
    default:
      return diagnostics::v1::REACH_OUTCOME_NO_ROUTE;
  }
}

void AskHealth(const std::string& address, absl::Duration timeout, ReachReport& report) {
  const absl::Time start = absl::Now();
  absl::Status asked;
  do {
    asked = rpc::CompareClocks(rpc::MakeChannel(address, {.retry = false}), timeout).status();
    if (!absl::IsUnavailable(asked)) break;
    absl::SleepFor(kReconnectPause);
  } while (absl::Now() < start + std::min(timeout, kReconnectFor));
  report.set_answer_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (asked.ok()) return;
  report.set_error(std::string(asked.message()));
  if (absl::IsDeadlineExceeded(asked)) {
    report.set_outcome(diagnostics::v1::REACH_OUTCOME_TIMED_OUT);
    report.set_error(
        absl::StrCat("connected, but no response within ", absl::FormatDuration(timeout)));
  } else if (absl::IsUnavailable(asked)) {
    report.set_outcome(diagnostics::v1::REACH_OUTCOME_NO_CHANNEL);
  } else {
    report.set_outcome(diagnostics::v1::REACH_OUTCOME_NOT_ADMITTED);
  }
}

}  // namespace

ReachReport Connect(const std::string& address, absl::Duration timeout) {
  ReachReport report;
  report.set_address(address);
  const absl::StatusOr<net::HostPort> parsed = net::ParseHostPort(address);
  if (!parsed.ok()) {
    report.set_outcome(diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN);
    report.set_error(std::string(parsed.status().message()));
    return report;
  }
  const auto addresses = net::Resolve(*parsed);
  if (!addresses.ok()) {
    report.set_outcome(diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN);
    report.set_error(absl::StrCat("the name ", parsed->host, ": ", addresses.status().message()));
    return report;
  }
  int error = EHOSTUNREACH;
  const absl::Time start = absl::Now();
  for (size_t i = 0; i < addresses->size() && error != 0; ++i) {
    host::FileDescriptor fd;
    std::string local;
    error = ConnectSocket((*addresses)[i], timeout, fd, &local);
    report.set_local_address(local);
    report.set_remote_address(NumericHost((*addresses)[i]));
  }
  report.set_connect_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  report.set_outcome(OutcomeOf(error));
  if (error != 0) report.set_error(std::strerror(error));
  return report;
}

ReachReport Reach(const std::string& address, absl::Duration timeout) {
  ReachReport report = Connect(address, timeout);
  if (report.outcome() == diagnostics::v1::REACH_OUTCOME_REACHED) {
    AskHealth(address, timeout, report);
  }
  return report;
}

std::vector<ReachReport> ReachAll(const std::vector<std::string>& addresses,
                                  absl::Duration timeout) {
  std::vector<ReachReport> reports(addresses.size());
  std::atomic<size_t> next{0};
  host::RunOnThreads(std::min(kAtOnce, addresses.size()), [&] {
    for (size_t at = next++; at < addresses.size(); at = next++) {
      reports[at] = Reach(addresses[at], timeout);
    }
  });
  return reports;
}

}  // namespace tandem::probe
