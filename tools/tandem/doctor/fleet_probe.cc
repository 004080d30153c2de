#include "tools/tandem/doctor/fleet_probe.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/exceptions.h"
#include "tandem/common/v1/error.pb.h"
#include "tandem/diagnostics/v1/diagnostics_service.grpc.pb.h"
#include "tools/tandem/plan/memory_budget.h"

namespace tandem::doctor {
namespace {

using diagnostics::v1::DiagnosticsService;
using diagnostics::v1::PairProbe;
using diagnostics::v1::ProbeGroupRequest;
using diagnostics::v1::ProbeGroupResponse;
using diagnostics::v1::RankProbe;
using nlohmann::json;

constexpr int64_t kSmallBytes = int64_t{4} << 20;
// Extra time for the work around the probe itself.
constexpr absl::Duration kAround = absl::Seconds(10);

// An address to call, and the ranks of the group that the call adds.
struct Member {
  bool is_trainer = false;
  std::string address;
  int first_rank = 0;
  int num_ranks = 1;
  absl::Status status;
  std::vector<RankProbe> ranks;
};

std::vector<Member> MembersOf(const std::vector<FleetService>& services, bool trainer_alone) {
  std::vector<Member> out;
  int next = 0;
  for (const FleetService& service : services) {
    if (trainer_alone && !service.is_trainer) continue;
    for (const std::string& address : service.addresses) {
      Member& member = out.emplace_back();
      member.is_trainer = service.is_trainer;
      member.address = address;
      member.first_rank = next;
      // A rollout's ranks are called one by one.
      member.num_ranks = service.is_trainer ? service.num_ranks : 1;
      next += member.num_ranks;
    }
  }
  return out;
}

class Probe {
 public:
  Probe(std::vector<Member> members, std::string backend, const ProbeOptions& options)
      : members_(std::move(members)), backend_(std::move(backend)), options_(options) {
    for (const Member& member : members_) size_ += member.num_ranks;
  }

  int size() const { return size_; }
  const std::string& backend() const { return backend_; }
  const std::vector<Member>& members() const { return members_; }

  // Every member's status and ranks are filled in.
  void Run() {
    // Rank 0 serves the rendezvous while its call lasts.
    Member& first = members_[0];
    const auto stub =
        DiagnosticsService::NewStub(rpc::MakeChannel(first.address, {.retry = false}));
    const auto context = rpc::MakeContext(options_.timeout + kAround);
    ProbeGroupRequest request = RequestFor(first);
    const auto reader = stub->ProbeGroup(context.get(), request);
    ProbeGroupResponse message;
    std::vector<std::thread> threads;
    if (reader->Read(&message) && message.has_rendezvous()) {
      for (size_t i = 1; i < members_.size(); ++i) {
        try {
          threads.emplace_back([this, i, &context, rendezvous = message.rendezvous()] {
            Join(members_[i], rendezvous);
            // The others would wait for a process that refused.
            if (!members_[i].status.ok()) context->TryCancel();
          });
        } catch (const std::system_error& error) {
          members_[i].status = StatusOf(error);
          context->TryCancel();
        }
      }
      while (reader->Read(&message)) Take(message, first);
    }
    for (std::thread& thread : threads) thread.join();
    first.status = rpc::FromGrpcStatus(reader->Finish());
  }

  // "trainer rank 1 (10.0.0.2:5000)" of a rank of the group.
  std::string NameOf(int rank) const {
    for (const Member& member : members_) {
      if (rank < member.first_rank || rank >= member.first_rank + member.num_ranks) continue;
      return FleetProcess{member.is_trainer, rank - member.first_rank, member.address, {}}.name();
    }
    return absl::StrCat("rank ", rank);
  }

  std::vector<RankProbe> Ranks() const {
    std::vector<RankProbe> out;
    for (const Member& member : members_) {
      out.insert(out.end(), member.ranks.begin(), member.ranks.end());
    }
    return out;
  }

 private:
  ProbeGroupRequest RequestFor(const Member& member) const {
    ProbeGroupRequest request;
    request.set_first_rank(member.first_rank);
    request.set_size(size_);
    request.set_backend(backend_);
    for (const Member& other : members_) {
      if (&other != &member) request.add_addresses(other.address);
    }
    if (options_.largest_bytes > kSmallBytes) request.add_sizes_bytes(kSmallBytes);
    request.add_sizes_bytes(options_.largest_bytes);
    request.mutable_timeout()->set_seconds(absl::ToInt64Seconds(options_.timeout));
    return request;
  }

  void Join(Member& member, const common::v1::GroupRendezvous& rendezvous) const {
    const auto stub =
        DiagnosticsService::NewStub(rpc::MakeChannel(member.address, {.retry = false}));
    const auto context = rpc::MakeContext(options_.timeout + kAround);
    ProbeGroupRequest request = RequestFor(member);
    *request.mutable_rendezvous() = rendezvous;
    const auto reader = stub->ProbeGroup(context.get(), request);
    ProbeGroupResponse message;
    while (reader->Read(&message)) Take(message, member);
    member.status = rpc::FromGrpcStatus(reader->Finish());
  }

  static void Take(const ProbeGroupResponse& message, Member& member) {
    if (!message.has_results()) return;
    member.ranks = {message.results().ranks().begin(), message.results().ranks().end()};
  }

  std::vector<Member> members_;
  const std::string backend_;
  const ProbeOptions options_;
  int size_ = 0;
};

bool HasReason(const absl::Status& status, const char* reason) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() && info->reason() == reason;
}

// Whether the probe took place; otherwise why not.
bool CheckMembers(const Probe& probe, Findings& findings) {
  bool refused = false;
  const std::string what = absl::StrCat("probe by ", probe.backend());
  for (const Member& member : probe.members()) {
    const absl::Status& status = member.status;
    if (status.ok() || absl::IsCancelled(status)) continue;
    refused = true;
    const std::string found = absl::StrCat(probe.NameOf(member.first_rank), ": ", status.message());
    if (HasReason(status, "BUSY") || HasReason(status, "PROBE_IN_PROGRESS")) {
      findings.Warn(what, found,
                    "checked reachability only, to leave the busy fleet undisturbed; run again "
                    "when it is idle");
    } else if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) {
      findings.Warn(what, found,
                    "checked reachability only: a bandwidth probe needs the role driver");
    } else if (absl::IsUnimplemented(status)) {
      findings.Warn(what, found, "deploy one version everywhere");
    } else {
      findings.Fail(what, found, "read its log");
    }
  }
  return !refused;
}

constexpr char kDataPortCure[] =
    "weights use ports that the system chooses (sysctl net.ipv4.ip_local_port_range), not the "
    "services' ports: open these between the hosts too; on a host with several adapters, the route "
    "to the trainer's address selects one (ip route get ADDRESS)";

// Returns whether every pair exchanged messages.
bool CheckPairs(const Probe& probe, const std::vector<RankProbe>& ranks, Findings& findings) {
  std::map<int, const RankProbe*> by_rank;
  for (const RankProbe& rank : ranks) by_rank[rank.rank()] = &rank;
  bool all = true;
  for (const RankProbe& rank : ranks) {
    for (const PairProbe& pair : rank.pairs()) {
      if (pair.error().empty()) continue;
      all = false;
      const auto peer = by_rank.find(pair.peer());
      std::string to = pair.address();
      if (to.empty()) to = peer == by_rank.end() ? "" : peer->second->address();
      findings.Fail(
          absl::StrCat("data ", probe.NameOf(rank.rank()), " -> ", probe.NameOf(pair.peer())),
          absl::StrCat(pair.error(), "; from ", rank.address(), " to ",
                       to.empty() ? "an unknown address" : to),
          kDataPortCure);
    }
  }
  for (const RankProbe& rank : ranks) {
    if (rank.error().empty()) continue;
    // Failed pairs, and the error of the rank that caused this one, are listed first.
    all = false;
    findings.Fail(absl::StrCat("data ", probe.NameOf(rank.rank())), rank.error(), kDataPortCure);
  }
  return all;
}

// The slowest rank's figures of one size.
struct Reduction {
  int64_t bytes = 0;
  double seconds = 0;
  double bytes_per_second = 0;
};

std::vector<Reduction> CheckSums(const Probe& probe, const std::vector<RankProbe>& ranks,
                                 Findings& findings) {
  std::vector<Reduction> out;
  for (const RankProbe& rank : ranks) {
    for (int i = 0; i < rank.reduces_size(); ++i) {
      const auto& reduce = rank.reduces(i);
      if (static_cast<int>(out.size()) <= i) out.emplace_back();
      if (reduce.seconds() >= out[i].seconds) {
        out[i] = {reduce.size_bytes(), reduce.seconds(), reduce.bytes_per_second()};
      }
      if (reduce.num_wrong_elements() == 0) continue;
      findings.Fail(
          absl::StrCat("all-reduce by ", probe.backend()),
          absl::StrFormat("%s got %d wrong elements of a sum of %s", probe.NameOf(rank.rank()),
                          reduce.num_wrong_elements(), plan::FormatBytes(reduce.size_bytes())),
          "data is damaged between these hosts: check the adapters' error counts (ip -s link, "
          "ethtool -S), turn offloads off (ethtool -K), test the memory");
    }
  }
  return out;
}

void AddFigures(const Probe& probe, const std::vector<RankProbe>& ranks,
                const std::vector<Reduction>& reductions, Findings& findings) {
  json pairs = json::array();
  std::vector<double> round_trips;
  for (const RankProbe& rank : ranks) {
    for (const PairProbe& pair : rank.pairs()) {
      round_trips.push_back(pair.round_trip_seconds());
      pairs.push_back({{"from", probe.NameOf(rank.rank())},
                       {"to", probe.NameOf(pair.peer())},
                       {"from_address", rank.address()},
                       {"to_address", pair.address()},
                       {"connect_seconds", pair.connect_seconds()},
                       {"round_trip_seconds", pair.round_trip_seconds()}});
    }
  }
  std::sort(round_trips.begin(), round_trips.end());
  json reduces = json::array();
  std::vector<std::string> texts;
  for (const Reduction& reduction : reductions) {
    reduces.push_back({{"bytes", reduction.bytes},
                       {"seconds", reduction.seconds},
                       {"bytes_per_second", reduction.bytes_per_second}});
    texts.push_back(absl::StrFormat("%s in %.4f s (%.3f GB/s)", plan::FormatBytes(reduction.bytes),
                                    reduction.seconds, 1e-9 * reduction.bytes_per_second));
  }
  Finding finding;
  finding.what = absl::StrCat("all-reduce by ", probe.backend());
  const std::string transport = ranks.empty() ? "" : ranks.front().transport();
  finding.found =
      absl::StrFormat("%s%s, every sum right: %s", Count(probe.size(), "process", "processes"),
                      transport == "tls" ? " over TLS" : "", absl::StrJoin(texts, ", "));
  if (!round_trips.empty()) {
    absl::StrAppendFormat(&finding.found, "; round trip %.3f ms, at most %.3f ms",
                          1e3 * round_trips[round_trips.size() / 2], 1e3 * round_trips.back());
  }
  finding.measured = {{"backend", probe.backend()},
                      {"transport", transport},
                      {"ranks", probe.size()},
                      {"reduces", std::move(reduces)},
                      {"pairs", std::move(pairs)}};
  findings.Add(std::move(finding));
}

void RunProbe(Probe probe, Findings& findings) {
  if (probe.size() < 2) return;
  probe.Run();
  if (!CheckMembers(probe, findings)) return;
  const std::vector<RankProbe> ranks = probe.Ranks();
  if (!CheckPairs(probe, ranks, findings)) return;
  const int errors = findings.Count(Severity::kError);
  const std::vector<Reduction> reductions = CheckSums(probe, ranks, findings);
  if (findings.Count(Severity::kError) == errors) AddFigures(probe, ranks, reductions, findings);
}

}  // namespace

void CheckProbe(const std::vector<FleetService>& services,
                const std::vector<FleetProcess>& processes, const ProbeOptions& options,
                Findings& findings) {
  if (options.largest_bytes <= 0 || services.empty()) return;
  RunProbe(Probe(MembersOf(services, /*trainer_alone=*/false), "gloo", options), findings);
  int with_nccl = 0;
  for (const FleetProcess& process : processes) {
    with_nccl += process.is_trainer && process.report.host().has_nccl() ? 1 : 0;
  }
  for (const FleetService& service : services) {
    if (service.is_trainer && service.num_ranks > 1 && with_nccl == service.num_ranks) {
      RunProbe(Probe(MembersOf(services, /*trainer_alone=*/true), "nccl", options), findings);
    }
  }
}

}  // namespace tandem::doctor
