// RolloutFleet::AgentSession: an agent's session on a replica.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_AGENT_SESSION_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_AGENT_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

// The fleet outlives it. Used by one thread.
class RolloutFleet::AgentSession {
 public:
  AgentSession(RolloutFleet& fleet, std::shared_ptr<Link> link,
               const rollout::v1::OpenSessionRequest& request, int64_t cost)
      : fleet_(fleet),
        link_(std::move(link)),
        id_(request.session_id()),
        incarnation_(request.incarnation()),
        cost_(cost) {}
  ~AgentSession();

  // Base URL of the replica's OpenAI endpoint.
  const std::string& url() const { return url_; }
  const std::string& replica() const;
  int64_t incarnation() const { return incarnation_; }

  // Ends the session and returns what it recorded. Call at most once. Errors name the replica.
  absl::StatusOr<rollout::v1::CloseSessionResponse> Close();

 private:
  friend class RolloutFleet;

  RolloutFleet& fleet_;
  const std::shared_ptr<Link> link_;
  const std::string id_;
  const int64_t incarnation_;
  const int64_t cost_;
  std::string url_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_AGENT_SESSION_H_
