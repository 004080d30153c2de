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

// Several packets of any network.
constexpr size_t kProbeBytes = 4 << 10;

}  // namespace

struct FleetMonitor::Question {
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
    for (const auto& [key, question] : questions_) question->context->TryCancel();
  }
  thread_.join();
  // Each question has a deadline, and is cancelled.
  absl::MutexLock lock(&mu_);
  const auto answered = [this] {
    mu_.AssertHeld();
    return questions_.empty();
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
    for (const FleetMembership::Poll& poll : options_.due()) Ask(poll);
  }
}

void FleetMonitor::Ask(const FleetMembership::Poll& poll) {
  auto& stub = stubs_[poll.address.address];
  // No retries: a poll tests whether the replica answers now.
  if (stub == nullptr) {
    stub = RolloutService::NewStub(rpc::MakeChannel(poll.address.address, {.retry = false}));
  }
  auto question = std::make_shared<Question>();
  question->stub = stub;
  question->context = rpc::MakeContext(options_.poll_timeout);
  if (options_.incarnation) question->request.set_incarnation(options_.incarnation());
  question->request.set_probe(std::string(kProbeBytes, '\0'));
  {
    absl::MutexLock lock(&mu_);
    questions_.emplace(question.get(), question);
    if (is_ending_) question->context->TryCancel();
  }
  stub->async()->GetServerInfo(question->context.get(), &question->request, &question->response,
                               [this, poll, question](const grpc::Status& grpc_status) {
                                 absl::Status status = rpc::FromGrpcStatus(grpc_status);
                                 if (status.ok()) {
                                   status = rpc::CheckAnswerEnums(question->response);
                                 }
                                 if (status.ok()) {
                                   options_.answered(poll, question->response);
                                 } else {
                                   options_.answered(poll, status);
                                 }
                                 absl::MutexLock lock(&mu_);
                                 questions_.erase(question.get());
                               });
}

}  // namespace tandem::driver
