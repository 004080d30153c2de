// What a rollout replica is to the driver.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_REPLICA_STATE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_REPLICA_STATE_H_

namespace tandem::driver {

// A replica that joins is JOINING, STALE until weights were made live on it, then SERVING. One that
// is LOST is looked for, and joins again when it answers.
enum class ReplicaState {
  kJoining,   // it has not answered yet
  kServing,   // it has the version that was published last
  kUpdating,  // a version is being published to it; it serves the old one
  kStale,     // it answers, and lacks the version that was published last
  kLost,      // it does not answer
  kDraining,  // it is leaving: it stops, or is not in the list of endpoints any more
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
