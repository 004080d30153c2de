// ReplicaState: the state of a rollout replica as the driver sees it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_REPLICA_STATE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_REPLICA_STATE_H_

namespace tandem::driver {

// A new replica is JOINING, then STALE until weights are live on it, then SERVING. The driver polls
// LOST replicas; one that answers joins again.
enum class ReplicaState {
  kJoining,   // it has not answered yet
  kServing,   // it has the version that was published last
  kUpdating,  // a version is being published to it; it serves the old one
  kStale,     // it answers, and lacks the version that was published last
  kLost,      // it does not answer
  kDraining,  // it is leaving: it is stopping, or no longer in the list of endpoints
};

inline const char* NameOf(ReplicaState state) {
  switch (state) {
    case ReplicaState::kJoining:
      return "JOINING";
    case ReplicaState::kServing:
      return "SERVING";
    case ReplicaState::kUpdating:
      return "UPDATING";
    case ReplicaState::kStale:
      return "STALE";
    case ReplicaState::kLost:
      return "LOST";
    case ReplicaState::kDraining:
      return "DRAINING";
  }
  return "";
}

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_REPLICA_STATE_H_
