#include "tools/tandem/driver/agent_session.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/fleet_job.h"

namespace tandem::driver {
namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(10);
// An answer may have megabytes.
constexpr absl::Duration kCloseTimeout = absl::Seconds(30);
constexpr absl::Duration kOpenAgainPause = absl::Milliseconds(200);

}  // namespace

RolloutFleet::AgentSession::~AgentSession() {
  absl::MutexLock lock(&fleet_.mu_);
  link_->outstanding_tokens -= cost_;
}

const std::string& RolloutFleet::AgentSession::replica() const { return link_->replica.id; }

absl::StatusOr<rollout::v1::CloseSessionResponse> RolloutFleet::AgentSession::Close() {
  rollout::v1::CloseSessionRequest request;
  request.set_session_id(id_);
  rollout::v1::CloseSessionResponse response;
  const auto context = rpc::MakeContext(kCloseTimeout);
  RETURN_IF_ERROR(rpc::FromGrpcStatus(link_->stub->CloseSession(context.get(), request, &response)))
      << "rollout " << link_->replica.id << " at " << link_->replica.address;
  return response;
}

absl::StatusOr<std::unique_ptr<RolloutFleet::AgentSession>> RolloutFleet::OpenSession(
    rollout::v1::OpenSessionRequest request, int64_t cost, const std::function<bool()>& cancelled) {
  const absl::Time deadline = absl::Now() + options_.request_timeout;
  std::set<std::string> failed_on;
  absl::Status last_error = absl::UnavailableError("no rollout is available");
  while (true) {
    std::unique_ptr<AgentSession> session;
    {
      absl::MutexLock lock(&mu_);
      if (is_aborting_ || cancelled()) {
        return absl::CancelledError("the session is no longer needed");
      }
      request.set_incarnation(trainer_incarnation_);
      if (std::shared_ptr<Link> link = Pick(failed_on, /*preferred=*/""); link != nullptr) {
        link->outstanding_tokens += cost;
        session = std::make_unique<AgentSession>(*this, std::move(link), request, cost);
      } else if (!options_.replicas_may_change) {
        return last_error;
      }
    }
    bool is_lost = false;
    if (session != nullptr) {
      rollout::v1::OpenSessionResponse response;
      const auto context = rpc::MakeContext(kOpenTimeout);
      absl::Status status =
          rpc::FromGrpcStatus(session->link_->stub->OpenSession(context.get(), request, &response));
      if (status.ok()) {
        session->url_ = response.url();
        return session;
      }
      const std::string& id = session->replica();
      is_lost = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
      if (!is_lost && !absl::IsResourceExhausted(status)) {
        return StatusBuilder(status)
               << "rollout " << id << " at " << session->link_->replica.address;
      }
      last_error = StatusBuilder(status) << "rollout " << id;
      absl::MutexLock lock(&mu_);
      if (is_lost) {
        failed_on.insert(id);
        membership_.Suspect(id, last_error, absl::Now());
      }
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("no rollout opened a session in time: ", last_error.message()));
    }
    if (!is_lost || options_.replicas_may_change) absl::SleepFor(kOpenAgainPause);
  }
}

}  // namespace tandem::driver
