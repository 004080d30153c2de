#include "tools/tandem/driver/fleet_monitor.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/status_conversion.h"

namespace tandem::driver {

using rollout::v1::GetServerInfoRequest;
using rollout::v1::GetServerInfoResponse;
using rollout::v1::RolloutService;

namespace {

// Larger than a packet of any network, so that a poll takes several.
constexpr size_t kProbeBytes = 4 << 10;

}  // namespace

struct FleetMonitor::Call {
  std::shared_ptr<RolloutService::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  GetServerInfoRequest request;
  GetServerInfoResponse response;
};

FleetMonitor::FleetMonitor(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Loop(); });
}

FleetMonitor::~FleetMonitor() {
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
    for (const auto& [key, call] : calls_) {
      if (call != nullptr) call->context->TryCancel();
    }
  }
  thread_.join();
  // Every call is cancelled and has a deadline, so this wait ends.
  absl::MutexLock lock(&mu_);
  const auto answered = [this] {
    mu_.AssertHeld();
    return calls_.empty();
  };
  mu_.Await(absl::Condition(&answered));
}

void FleetMonitor::Wake() {
  absl::MutexLock lock(&mu_);
  is_awake_ = true;
}

void FleetMonitor::Loop() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto is_time = [this] {
        mu_.AssertHeld();
        return is_awake_ || is_ending_;
      };
      mu_.AwaitWithTimeout(absl::Condition(&is_time), options_.period);
      if (is_ending_) return;
      is_awake_ = false;
    }
    options_.tick();
    for (const FleetMembership::Poll& poll : options_.due()) StartPoll(poll);
  }
}

void FleetMonitor::StartPoll(const FleetMembership::Poll& poll) {
  auto& stub = stubs_[poll.address.address];
  // No retries: a poll tests whether the replica answers now.
  if (stub == nullptr) {
    stub = RolloutService::NewStub(rpc::MakeChannel(poll.address.address, {.retry = false}));
  }
  auto call = std::make_shared<Call>();
  call->stub = stub;
  call->context = rpc::MakeContext(options_.poll_timeout);
  if (options_.incarnation) call->request.set_incarnation(options_.incarnation());
  call->request.set_probe(std::string(kProbeBytes, '\0'));
  {
    absl::MutexLock lock(&mu_);
    calls_.emplace(call.get(), call);
    if (is_ending_) call->context->TryCancel();
  }
  stub->async()->GetServerInfo(call->context.get(), &call->request, &call->response,
                               [this, poll, call = call.get()](const grpc::Status& grpc_status) {
                                 absl::Status status = rpc::FromGrpcStatus(grpc_status);
                                 if (status.ok()) {
                                   status = rpc::CheckAnswerEnums(call->response);
                                 }
                                 if (status.ok()) {
                                   options_.answered(poll, call->response);
                                 } else {
                                   options_.answered(poll, status);
                                 }
                                 Forget(call);
                               });
}

// A thread of gRPC that destroys the last channel waits for itself, so the call goes before the
// monitor may.
void FleetMonitor::Forget(Call* call) {
  std::shared_ptr<Call> ended;
  {
    absl::MutexLock lock(&mu_);
    ended = std::move(calls_[call]);
  }
  ended.reset();
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
}

}  // namespace tandem::driver
