#include "tools/tandem/doctor/fleet_reach.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/host/run_on_threads.h"
#include "common/net/host_port.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transport_security.h"
#include "tandem/diagnostics/v1/diagnostics_service.grpc.pb.h"

namespace tandem::doctor {
namespace {

using diagnostics::v1::CheckReachRequest;
using diagnostics::v1::CheckReachResponse;
using diagnostics::v1::ReachReport;
using nlohmann::json;

// Processes in the printed table; larger fleets appear only in the JSON.
constexpr size_t kLargestTable = 16;
// Addresses that a process tries in parallel.
constexpr int kAtOnce = 32;

struct Asked {
  bool is_trainer = false;
  std::string key;
  std::string address;
  int num_ranks = 1;
  absl::Status status;
  CheckReachResponse response;
};

std::vector<Asked> AskAll(const std::vector<FleetService>& services, absl::Duration timeout) {
  std::vector<Asked> all;
  CheckReachRequest request;
  for (const FleetService& service : services) {
    for (const std::string& address : service.addresses) {
      all.push_back({service.is_trainer, service.key, address, service.num_ranks});
      request.add_addresses(address);
    }
  }
  request.mutable_timeout()->set_seconds(std::max<int64_t>(1, absl::ToInt64Seconds(timeout)));
  // Time for a failed name lookup and then for a port without a response.
  const int rounds = (request.addresses_size() + kAtOnce - 1) / kAtOnce;
  const absl::Duration deadline = 3 * rounds * timeout + absl::Seconds(10);
  std::atomic<size_t> next{0};
  host::RunOnThreads(all.size(), [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      Asked& asked = all[i];
      const auto stub = diagnostics::v1::DiagnosticsService::NewStub(
          rpc::MakeChannel(asked.address, {.retry = false}));
      const auto context = rpc::MakeContext(deadline);
      asked.status = rpc::FromGrpcStatus(stub->CheckReach(context.get(), request, &asked.response));
    }
  });
  return all;
}

const char* WordFor(diagnostics::v1::ReachOutcome outcome) {
  switch (outcome) {
    case diagnostics::v1::REACH_OUTCOME_REACHED:
      return "reached";
    case diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN:
      return "unknown";
    case diagnostics::v1::REACH_OUTCOME_REFUSED:
      return "refused";
    case diagnostics::v1::REACH_OUTCOME_NO_ROUTE:
      return "no route";
    case diagnostics::v1::REACH_OUTCOME_TIMED_OUT:
      return "timed out";
    case diagnostics::v1::REACH_OUTCOME_NO_CHANNEL:
      return "no TLS";
    default:
      return "denied";
  }
}

std::string CureFor(diagnostics::v1::ReachOutcome outcome, const std::string& key) {
  switch (outcome) {
    case diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN:
      return absl::StrCat(
          "make the name resolvable on that host (DNS, /etc/hosts), or use an IP address in ", key);
    case diagnostics::v1::REACH_OUTCOME_REFUSED:
      return absl::StrCat(
          "let the service listen on a reachable address (--listen 0.0.0.0:PORT), or correct ",
          key);
    case diagnostics::v1::REACH_OUTCOME_NO_ROUTE:
      return "give the two hosts a route to each other (ip route get ADDRESS), or allow it in the "
             "network's policy";
    case diagnostics::v1::REACH_OUTCOME_TIMED_OUT:
      return "open the port between the two hosts: a firewall, security group or NetworkPolicy "
             "drops packets; if it is open, the process hangs: read its log";
    case diagnostics::v1::REACH_OUTCOME_NO_CHANNEL:
      return "give all processes certificates of one authority (--tls-cert, --tls-key, --tls-ca), "
             "or "
             "none; openssl x509 -in FILE -noout -text shows what one has";
    default:
      return absl::StrCat(
          "another program listens there, or the service refuses this role: correct the port of ",
          key, ", or the certificates' roles");
  }
}

// One pair: what `from` found of `to`.
struct Pair {
  const FleetProcess* from = nullptr;
  const Asked* to = nullptr;
  const ReachReport* reached = nullptr;
  bool wrong_loopback = false;  // the address means the asking host itself

  bool ok() const {
    return !wrong_loopback && reached->outcome() == diagnostics::v1::REACH_OUTCOME_REACHED;
  }
  std::string to_name() const {
    return absl::StrCat(to->is_trainer ? "trainer " : "rollout ", to->address);
  }
};

void AddFailure(const Pair& pair, Findings& findings) {
  Finding finding;
  finding.what = absl::StrCat(pair.from->name(), " -> ", pair.to_name());
  // No rollout calls the trainer; but it is there, by other ports, that it fetches weights.
  const bool is_called = pair.from->is_trainer || !pair.to->is_trainer;
  finding.severity = is_called ? Severity::kError : Severity::kWarning;
  const std::string& host = pair.from->report.host().hostname();
  if (pair.wrong_loopback) {
    finding.found = absl::StrCat(pair.to->address, " is on host ", host, " that host itself");
    finding.cure =
        absl::StrCat("state in ", pair.to->key, " an address at which the other hosts reach it");
    findings.Add(std::move(finding));
    return;
  }
  std::string from = pair.reached->local_address();
  if (from.empty()) {
    const auto own = net::ParseHostPort(pair.from->address);
    from =
        absl::StrCat(own.ok() ? own->host : pair.from->address, " (no address of it leads there)");
  }
  std::string to = pair.to->address;
  if (auto reached = net::ParseHostPort(to);
      reached.ok() && !pair.reached->remote_address().empty()) {
    reached->host = pair.reached->remote_address();
    to = reached->ToString();
  }
  finding.found = absl::StrCat(WordFor(pair.reached->outcome()), ": ", pair.reached->error(),
                               "; from ", from, " on host ", host, " to ", to);
  finding.cure = CureFor(pair.reached->outcome(), pair.to->key);
  findings.Add(std::move(finding));
}

json ToJson(const std::vector<Pair>& pairs) {
  json out = json::array();
  for (const Pair& pair : pairs) {
    json entry = {
        {"from", pair.from->name()},
        {"from_host", pair.from->report.host().hostname()},
        {"to", pair.to_name()},
        {"outcome", pair.wrong_loopback ? "wrong loopback" : WordFor(pair.reached->outcome())}};
    if (pair.ok()) {
      entry["connect_seconds"] = pair.reached->connect_seconds();
      entry["answer_seconds"] = pair.reached->answer_seconds();
    } else {
      entry["error"] = pair.reached->error();
    }
    out.push_back(std::move(entry));
  }
  return {{"pairs", std::move(out)}};
}

// Milliseconds of a connection, or why there is none.
std::string TableOf(const std::vector<FleetProcess>& processes, const std::vector<Asked>& targets,
                    const std::vector<Pair>& pairs) {
  if (processes.size() > kLargestTable || targets.size() > kLargestTable) return "";
  std::string out = absl::StrFormat("%-34s", "ms to connect, from \\ to");
  for (size_t i = 0; i < targets.size(); ++i)
    absl::StrAppendFormat(&out, " %9s", absl::StrCat("[", i, "]"));
  for (const FleetProcess& from : processes) {
    absl::StrAppendFormat(&out, "\n%-34s", from.name());
    for (const Asked& to : targets) {
      std::string cell = "-";
      for (const Pair& pair : pairs) {
        if (pair.from != &from || pair.to != &to) continue;
        cell = pair.ok() ? absl::StrFormat("%.2f", 1e3 * pair.reached->connect_seconds())
               : pair.wrong_loopback ? "loopback"
                                     : WordFor(pair.reached->outcome());
      }
      absl::StrAppendFormat(&out, " %9s", cell);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "\n" : ", ", "[", i, "] ", targets[i].address);
  }
  return out;
}

void AddSummary(const std::vector<FleetProcess>& processes, const std::vector<Asked>& targets,
                const std::vector<Pair>& pairs, int busy, Findings& findings) {
  std::set<std::string> machines;
  for (const FleetProcess& process : processes) {
    machines.insert(process.report.host().network_id());
  }
  std::vector<const Pair*> good;
  for (const Pair& pair : pairs) {
    if (pair.ok()) good.push_back(&pair);
  }
  Finding finding;
  finding.what = "reach";
  finding.found = absl::StrFormat(
      "%d of %s of %s on %s reach each other", good.size(), Count(pairs.size(), "pair"),
      Count(processes.size(), "process", "processes"), Count(machines.size(), "host"));
  if (!good.empty()) {
    std::sort(good.begin(), good.end(), [](const Pair* a, const Pair* b) {
      return a->reached->connect_seconds() < b->reached->connect_seconds();
    });
    const Pair& last = *good.back();
    absl::StrAppendFormat(&finding.found, "; connecting takes %.2f ms, at most %.2f ms (%s -> %s)",
                          1e3 * good[good.size() / 2]->reached->connect_seconds(),
                          1e3 * last.reached->connect_seconds(), last.from->name(), last.to_name());
  }
  if (busy > 0)
    absl::StrAppendFormat(
        &finding.found, "; %s busy",
        busy == 1 ? "1 trainer rank was" : absl::StrCat(busy, " trainer ranks were"));
  finding.measured = ToJson(pairs);
  finding.table = TableOf(processes, targets, pairs);
  findings.Add(std::move(finding));
}

void AddRefusal(const Asked& asked, Findings& findings) {
  const std::string what = absl::StrCat(asked.is_trainer ? "trainer " : "rollout ", asked.address);
  const std::string said = std::string(asked.status.message());
  if (absl::IsUnimplemented(asked.status)) {
    findings.Warn(what, "it does not support reachability checks", "deploy one version everywhere");
  } else if (absl::IsPermissionDenied(asked.status) || absl::IsUnauthenticated(asked.status)) {
    findings.Warn(what, said, "use a certificate or token of the role driver or observer");
  } else {
    findings.Fail(what, absl::StrCat("asked what it reaches: ", said), "look at its log");
  }
}

}  // namespace

std::vector<FleetProcess> CheckReach(const std::vector<FleetService>& services,
                                     absl::Duration timeout, Findings& findings) {
  const std::vector<Asked> all = AskAll(services, timeout);
  std::vector<FleetProcess> processes;
  int busy = 0;
  for (const Asked& asked : all) {
    if (!asked.status.ok()) {
      AddRefusal(asked, findings);
      continue;
    }
    busy += asked.response.num_busy_ranks();
    for (const auto& report : asked.response.processes()) {
      processes.push_back({asked.is_trainer, report.rank(), asked.address, report});
    }
  }
  const auto process_at = [&](const std::string& address) -> const FleetProcess* {
    for (const FleetProcess& process : processes) {
      if (process.address == address) return &process;
    }
    return nullptr;
  };
  std::vector<Pair> pairs;
  for (const FleetProcess& from : processes) {
    for (size_t i = 0; i < all.size() && static_cast<int>(i) < from.report.reached_size(); ++i) {
      const Asked& to = all[i];
      // A process does not call itself, nor do the trainer's ranks their leader.
      if (to.address == from.address || (from.is_trainer && to.is_trainer)) continue;
      Pair pair{&from, &to, &from.report.reached(static_cast<int>(i))};
      const FleetProcess* other = process_at(to.address);
      pair.wrong_loopback = other != nullptr && rpc::IsLoopback(to.address) &&
                            other->report.host().network_id() != from.report.host().network_id();
      pairs.push_back(pair);
    }
  }
  for (const Pair& pair : pairs) {
    if (!pair.ok()) AddFailure(pair, findings);
  }
  if (!pairs.empty()) AddSummary(processes, all, pairs, busy, findings);
  return processes;
}

}  // namespace tandem::doctor
