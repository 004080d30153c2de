#include "common/probe/diagnostics_service.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/local_address.h"
#include "common/comm/process_group.h"
#include "common/host/host_report.h"
#include "common/host/process_memory.h"
#include "common/net/host_port.h"
#include "common/probe/group_probe.h"
#include "common/probe/reach.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/security/secret.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"

namespace tandem::probe {
namespace {

using diagnostics::v1::CheckReachRequest;
using diagnostics::v1::CheckReachResponse;
using diagnostics::v1::ProbeGroupRequest;
using diagnostics::v1::ProbeGroupResponse;
using diagnostics::v1::ProbeResults;

constexpr int kMaxReaches = 4;
constexpr int kMaxAddresses = 4096;
constexpr absl::Duration kDefaultReachTimeout = absl::Seconds(5);
constexpr absl::Duration kMaxReachTimeout = absl::Minutes(1);

absl::Status CheckReachFields(const CheckReachRequest& request) {
  if (request.addresses_size() > kMaxAddresses) {
    return rpc::InvalidField("addresses", absl::StrCat("expected at most ", kMaxAddresses,
                                                       ", found ", request.addresses_size()));
  }
  const absl::Duration timeout = ReachTimeout(request);
  if (timeout <= absl::ZeroDuration() || timeout > kMaxReachTimeout) {
    return rpc::InvalidField("timeout",
                             absl::StrCat("expected up to ", absl::FormatDuration(kMaxReachTimeout),
                                          ", found ", absl::FormatDuration(timeout)));
  }
  return absl::OkStatus();
}

// Address at which the group's other processes find this host, chosen like for a weight update. One
// address for all: loopback only if every process is on this host.
std::string AdvertiseHost(const ProbeGroupRequest& request) {
  for (const std::string& address : request.addresses()) {
    const auto parsed = net::ParseHostPort(address);
    if (!parsed.ok()) continue;
    const auto local = comm::LocalAddressTowards(parsed->host);
    if (local.ok() && !absl::StartsWith(*local, "127.") && *local != "::1") return *local;
  }
  return "127.0.0.1";
}

// A departed caller and a drain may both end one probe; a notification allows only one Notify().
void NotifyOnce(absl::Notification& notification) {
  static auto& mu = *new absl::Mutex;
  absl::MutexLock lock(&mu);
  if (!notification.HasBeenNotified()) notification.Notify();
}

absl::Status Draining() { return absl::UnavailableError("the process is stopping"); }

}  // namespace

absl::Duration ReachTimeout(const CheckReachRequest& request) {
  return request.has_timeout() ? rpc::FromProto(request.timeout()) : kDefaultReachTimeout;
}

CheckReachResponse ReachFromHere(const CheckReachRequest& request, int rank, bool has_nccl) {
  CheckReachResponse response;
  diagnostics::v1::ProcessReport& report = *response.add_processes();
  report.set_rank(rank);
  *report.mutable_host() = host::DescribeHost();
  report.mutable_host()->set_has_nccl(has_nccl);
  report.set_resident_bytes(host::ResidentBytes());
  for (auto& reached :
       ReachAll({request.addresses().begin(), request.addresses().end()}, ReachTimeout(request))) {
    *report.add_reached() = std::move(reached);
  }
  return response;
}

// Writes its thread's messages. The thread ends with Finish() and does not touch the call after
// that.
class DiagnosticsServiceImpl::ProbeCall
    : public grpc::ServerWriteReactor<diagnostics::v1::ProbeGroupResponse> {
 public:
  ProbeCall(DiagnosticsServiceImpl* service, const ProbeGroupRequest& request)
      : request_(request), cancel_(std::make_shared<absl::Notification>()) {
    const absl::Status entered = service->EnterProbe(request_, this);
    if (!entered.ok()) {
      Finish(rpc::ToGrpcStatus(entered));
      return;
    }
    std::thread([this, service] {
      const absl::Status status = Catch([&] { return Run(*service); });
      Finish(rpc::ToGrpcStatus(status));
      service->LeaveProbe();
    }).detach();
  }

  const std::shared_ptr<absl::Notification>& cancel() const { return cancel_; }

  void OnCancel() override { NotifyOnce(*cancel_); }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    broken_ |= !ok;
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Run(DiagnosticsServiceImpl& service) {
    const absl::Time deadline = absl::Now() + rpc::FromProto(request_.timeout());
    std::unique_ptr<comm::StoreServer> store;
    if (!request_.has_rendezvous()) {
      const std::string secret = security::DrawSecret();
      const std::string host = AdvertiseHost(request_);
      ASSIGN_OR_RETURN(store, comm::StoreServer::Start({.host = host, .secret = secret}));
      common::v1::GroupRendezvous& rendezvous = *request_.mutable_rendezvous();
      rendezvous.set_backend(request_.backend());
      rendezvous.set_host(host);
      rendezvous.set_port(store->port());
      rendezvous.set_prefix(absl::StrCat("probe/", rpc::NewUuid()));
      rendezvous.set_secret(secret);
      rendezvous.set_size(request_.size());
      ProbeGroupResponse message;
      *message.mutable_rendezvous() = rendezvous;
      RETURN_IF_ERROR(Write(message));
    }
    ASSIGN_OR_RETURN(const ProbeResults results, service.Probe(request_, deadline, cancel_));
    ProbeGroupResponse message;
    *message.mutable_results() = results;
    return Write(message);
  }

  // Returns once the message has been sent.
  absl::Status Write(const ProbeGroupResponse& message) {
    {
      absl::MutexLock lock(&mu_);
      writing_ = true;
    }
    StartWrite(&message);
    absl::MutexLock lock(&mu_);
    const auto written = [this] {
      mu_.AssertReaderHeld();
      return !writing_;
    };
    mu_.Await(absl::Condition(&written));
    return broken_ ? absl::CancelledError("the caller cancelled") : absl::OkStatus();
  }

  ProbeGroupRequest request_;
  const std::shared_ptr<absl::Notification> cancel_;
  absl::Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
};

DiagnosticsServiceImpl::~DiagnosticsServiceImpl() {
  Shutdown();
  absl::MutexLock lock(&mu_);
  const auto idle = [this] {
    mu_.AssertReaderHeld();
    return num_reaches_ == 0 && !probes_;
  };
  mu_.Await(absl::Condition(&idle));
}

void DiagnosticsServiceImpl::Shutdown() {
  absl::MutexLock lock(&mu_);
  shut_down_ = true;
  if (cancel_ != nullptr) NotifyOnce(*cancel_);
}

absl::Status DiagnosticsServiceImpl::EnterReach() {
  absl::MutexLock lock(&mu_);
  if (shut_down_) return Draining();
  if (num_reaches_ >= kMaxReaches) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxReaches, " CheckReach calls are running; try again later"));
  }
  ++num_reaches_;
  return absl::OkStatus();
}

void DiagnosticsServiceImpl::LeaveReach() {
  absl::MutexLock lock(&mu_);
  --num_reaches_;
}

absl::Status DiagnosticsServiceImpl::EnterProbe(const ProbeGroupRequest& request, ProbeCall* call) {
  RETURN_IF_ERROR(CheckProbeRequest(request));
  if (options_.busy) {
    RETURN_IF_ERROR(options_.busy());
  }
  absl::MutexLock lock(&mu_);
  if (shut_down_) return Draining();
  if (probes_) {
    return rpc::WithReason(
        absl::ResourceExhaustedError("another probe is running; try again when it has finished"),
        "PROBE_IN_PROGRESS");
  }
  probes_ = true;
  cancel_ = call->cancel();
  return absl::OkStatus();
}

void DiagnosticsServiceImpl::LeaveProbe() {
  absl::MutexLock lock(&mu_);
  probes_ = false;
  cancel_ = nullptr;
}

absl::StatusOr<ProbeResults> DiagnosticsServiceImpl::Probe(
    const ProbeGroupRequest& request, absl::Time deadline,
    const std::shared_ptr<absl::Notification>& cancel) const {
  if (options_.probe_group) return options_.probe_group(request, deadline, cancel);
  ProbeResults results;
  *results.add_ranks() = ProbeAsRank(request, request.first_rank(), deadline, cancel.get());
  return results;
}

grpc::ServerUnaryReactor* DiagnosticsServiceImpl::CheckReach(grpc::CallbackServerContext* context,
                                                             const CheckReachRequest* request,
                                                             CheckReachResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status status = CheckReachFields(*request);
  if (status.ok()) status = EnterReach();
  if (!status.ok()) {
    reactor->Finish(rpc::ToGrpcStatus(status));
    return reactor;
  }
  std::thread([this, reactor, request, response] {
    const absl::Status status = Catch([&] {
      *response = options_.check_reach ? options_.check_reach(*request)
                                       : ReachFromHere(*request, options_.rank, /*has_nccl=*/false);
      return absl::OkStatus();
    });
    reactor->Finish(rpc::ToGrpcStatus(status));
    LeaveReach();
  }).detach();
  return reactor;
}

grpc::ServerWriteReactor<ProbeGroupResponse>* DiagnosticsServiceImpl::ProbeGroup(
    grpc::CallbackServerContext*, const ProbeGroupRequest* request) {
  return new ProbeCall(this, *request);
}

}  // namespace tandem::probe
