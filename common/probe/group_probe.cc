#include "common/probe/group_probe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/choose_group.h"
#include "common/comm/link_facts.h"
#include "common/comm/process_group.h"
#include "common/comm/time_left.h"
#include "common/comm/wait_on_host.h"
#include "common/probe/pair_probe.h"
#include "common/probe/probe_pattern.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::probe {
namespace {

using diagnostics::v1::ProbeGroupRequest;
using diagnostics::v1::RankProbe;
using diagnostics::v1::ReduceProbe;

constexpr int kRepeats = 3;

absl::Status Reduce(comm::ProcessGroup& group, int64_t size_bytes, at::Device device,
                    RankProbe& out) {
  const int64_t count = size_bytes / static_cast<int64_t>(sizeof(float));
  ReduceProbe& probe = *out.add_reduces();
  probe.set_size_bytes(count * static_cast<int64_t>(sizeof(float)));
  probe.set_seconds(std::numeric_limits<double>::infinity());
  for (int i = 0; i < kRepeats; ++i) {
    const at::Tensor tensor = ProbePattern(count, group.rank()).to(device);
    const std::string tag = absl::StrCat("probe of ", probe.size_bytes(), " bytes");
    // Excludes the wait for the slowest rank from the time.
    RETURN_IF_ERROR(group.Barrier(tag));
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(const auto work, group.AllReduce(tensor, comm::ReduceOp::kSum, tag));
    RETURN_IF_ERROR(comm::WaitOnHost(group, *work));
    probe.set_seconds(std::min(probe.seconds(), absl::ToDoubleSeconds(absl::Now() - start)));
    probe.set_num_wrong_elements(probe.num_wrong_elements() +
                                 CountWrongElements(tensor.to(at::kCPU), group.size()));
  }
  const double moved = 2.0 * (group.size() - 1) / group.size() * probe.size_bytes();
  probe.set_bytes_per_second(moved / std::max(1e-9, probe.seconds()));
  return absl::OkStatus();
}

absl::Status Probe(const ProbeGroupRequest& request, int rank, absl::Time deadline,
                   const absl::Notification* cancel, RankProbe& out) {
  const auto& rendezvous = request.rendezvous();
  PairProbeOptions pairs;
  pairs.rendezvous = {rendezvous.host(), rendezvous.port(), rendezvous.prefix(),
                      rendezvous.secret()};
  pairs.rank = rank;
  pairs.size = request.size();
  pairs.deadline = absl::Now() + (deadline - absl::Now()) / 2;
  pairs.cancel = cancel;
  ASSIGN_OR_RETURN(const bool all_could, ProbePairs(pairs, out));
  if (!all_could || request.sizes_bytes().empty()) return absl::OkStatus();
  comm::GroupOptions options;
  options.name = "probe";
  options.family = "probe";
  options.rank = rank;
  options.size = request.size();
  options.rendezvous = pairs.rendezvous;
  options.rendezvous.prefix += "/group";
  options.timeout = comm::TimeLeft(deadline);
  options.cancel = cancel;
  ASSIGN_OR_RETURN(const auto group, comm::CreateGroupOf(request.backend(), options));
  out.set_transport(comm::TransportOf(*group));
  const at::Device device(request.backend() == "nccl" ? at::kCUDA : at::kCPU);
  for (const int64_t size_bytes : request.sizes_bytes()) {
    group->SetTimeout(comm::TimeLeft(deadline));
    RETURN_IF_ERROR(Reduce(*group, size_bytes, device, out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProbeRequest(const ProbeGroupRequest& request) {
  const auto refuse = [](const char* field, const std::string& description) {
    return rpc::InvalidField(field, description);
  };
  if (request.size() < 2 || request.size() > kMaxProbeRanks) {
    return refuse("size",
                  absl::StrCat("expected 2 to ", kMaxProbeRanks, ", found ", request.size()));
  }
  if (request.first_rank() < 0 || request.first_rank() >= request.size()) {
    return refuse("first_rank", absl::StrCat("expected 0 to ", request.size() - 1, ", found ",
                                             request.first_rank()));
  }
  if (request.has_rendezvous() == (request.first_rank() == 0)) {
    return refuse("rendezvous",
                  "expected none for rank 0, which serves it, and one for the other ranks");
  }
  if (request.addresses_size() > kMaxProbeRanks) {
    return refuse("addresses", absl::StrCat("expected at most ", kMaxProbeRanks, ", found ",
                                            request.addresses_size()));
  }
  if (request.backend() != "gloo" && request.backend() != "nccl") {
    return refuse("backend",
                  absl::StrCat("expected gloo or nccl, found '", request.backend(), "'"));
  }
  if (request.sizes_bytes_size() > kMaxProbeSizes) {
    return refuse("sizes_bytes", absl::StrCat("expected at most ", kMaxProbeSizes, ", found ",
                                              request.sizes_bytes_size()));
  }
  for (const int64_t size : request.sizes_bytes()) {
    if (size < static_cast<int64_t>(sizeof(float)) || size > kMaxProbeBytes) {
      return refuse("sizes_bytes",
                    absl::StrCat("expected 4 to ", kMaxProbeBytes, ", found ", size));
    }
  }
  const absl::Duration timeout = rpc::FromProto(request.timeout());
  if (timeout <= absl::ZeroDuration() || timeout > kMaxProbeTime) {
    return refuse("timeout", absl::StrCat("expected up to ", absl::FormatDuration(kMaxProbeTime),
                                          ", found ", absl::FormatDuration(timeout)));
  }
  return absl::OkStatus();
}

RankProbe ProbeAsRank(const ProbeGroupRequest& request, int rank, absl::Time deadline,
                      const absl::Notification* cancel) {
  RankProbe out;
  out.set_rank(rank);
  absl::Status status;
  try {
    status = Probe(request, rank, deadline, cancel, out);
  } catch (const std::exception& error) {
    const std::string text(error.what());  // LibTorch adds a stack trace after the first line
    status = absl::InternalError(text.substr(0, text.find('\n')));
  }
  if (!status.ok()) out.set_error(std::string(status.message()));
  return out;
}

}  // namespace tandem::probe
