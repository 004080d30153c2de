// FleetMembership: the rollout replicas and the state of each, derived from the list of addresses,
// the responses to GetServerInfo, and the weight updates.
//
//   membership.SetMembers({{"rollout-0", "10.0.0.2:5001"}}, now);
//   for (const auto& poll : membership.DuePolls(now)) {
//     GetServerInfo(poll.address);   // then OnAnswer() or OnSilence()
//   }
//   std::vector<ReplicaAddress> there = membership.BeginPublish(false, now);
//   membership.EndPublish(version, committed, now);
//
// It makes no calls and starts no thread; callers pass the time, so tests advance it by hand.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MEMBERSHIP_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/replica_state.h"

namespace tandem::driver {

struct ReplicaAddress {
  std::string id;
  std::string address;  // HOST:PORT
  bool operator==(const ReplicaAddress&) const = default;
};

// Not thread-safe: RolloutFleet's lock guards it.
class FleetMembership {
 public:
  struct Options {
    // Between polls of one replica.
    absl::Duration poll_interval = absl::Milliseconds(500);
    // Longest pause between polls of a LOST replica; the pause doubles up to it.
    absl::Duration longest_pause = absl::Seconds(8);
    // This many unanswered polls in a row make a replica LOST; after a failed request, one does.
    int misses_until_lost = 3;
    // A replica that answers polls but missed this many versions in a row backs off: it gets no
    // version during a pause that starts at the duration of the last update, at least
    // `first_backoff`, and doubles with each further failure up to the larger of `longest_backoff`
    // and kMaxBackoffFactor times that duration.
    int failures_until_backoff = 2;
    absl::Duration first_backoff = absl::Seconds(5);
    absl::Duration longest_backoff = absl::Minutes(5);
  };
  static constexpr int kMaxBackoffFactor = 16;

  struct Replica {
    ReplicaAddress address;
    ReplicaState state = ReplicaState::kJoining;
    int64_t policy_version = -1;  // that it last reported or committed
    std::string last_error;       // why it is LOST
    bool suspected = false;       // a call failed; the next poll decides
    bool is_in_list = true;

    bool takes_requests() const {
      return !suspected && (state == ReplicaState::kServing || state == ReplicaState::kUpdating);
    }

    // It responds to polls and does not drain.
    bool is_reachable() const {
      return takes_requests() || (!suspected && state == ReplicaState::kStale);
    }

    // Internal to FleetMembership.
    std::string instance_id;
    int64_t committed = -1;   // last version published from here that this process committed
    bool has_served = false;  // since it joined
    bool is_first = false;    // a member from the start
    bool is_polled = false;
    int misses = 0;
    bool was_published_to = false;  // by the current update
    // Grows by two for each version that it missed and falls by one for each that it got, so that a
    // flapping replica backs off sooner.
    int strikes = 0;
    absl::Time backs_off_until = absl::InfinitePast();
    absl::Time next_poll = absl::InfinitePast();
    absl::Duration pause;
  };

  // A poll to send. The version in its response counts only if no update began or ended meanwhile.
  struct Poll {
    ReplicaAddress address;
    int64_t epoch = 0;
  };

  explicit FleetMembership(Options options) : options_(options) {}

  // A replica counts as SERVING only with this trainer's weights; 0, the default: with any.
  void SetTrainer(int64_t incarnation) { trainer_incarnation_ = incarnation; }

  // Sets the current list of addresses. Added replicas join; removed ones are DRAINING until
  // Forget(). An id with another address is another replica.
  void SetMembers(const std::vector<ReplicaAddress>& members, absl::Time now);

  // Returns the due polls and marks their replicas as being polled.
  std::vector<Poll> DuePolls(absl::Time now);
  void OnAnswer(const Poll& poll, const rollout::v1::GetServerInfoResponse& info, absl::Time now);
  void OnSilence(const Poll& poll, const absl::Status& error, absl::Time now);

  // Call after a request failed on the replica: it takes no more until it answers a poll.
  void Suspect(const std::string& id, const absl::Status& error, absl::Time now);

  // Call when a DRAINING replica that is not in the list has no more requests.
  void Forget(const std::string& id);

  // Returns the replicas to publish to: those that answer and do not drain, and `with_joining` also
  // those that have not answered yet. Skips replicas that back off while there are others. Serving
  // ones become UPDATING until EndPublish(), which takes the ids that committed `version` and polls
  // the others.
  std::vector<ReplicaAddress> BeginPublish(bool with_joining, absl::Time now);
  void EndPublish(int64_t version, const std::set<std::string>& committed, absl::Time now);
  // Call if nothing was published. Every replica counts again once it answers a poll.
  void AbandonPublish(absl::Time now);
  bool AnyIsReachable() const;

  const std::map<std::string, Replica>& replicas() const { return replicas_; }  // by id
  const Replica* Find(const std::string& id) const;
  int Count(ReplicaState state) const;
  // Whether a replica lacks the version that was published last and does not back off.
  bool AnyWantsWeights(absl::Time now) const;
  // Number of replicas that back off.
  int CountBackingOff(absl::Time now) const;
  // The version that was published last; -1 before the first.
  int64_t version() const { return version_; }
  // When the next poll is due.
  absl::Time NextPoll() const;

  // Returns the events since the last call, one line each, for the user.
  std::vector<std::string> TakeNotes();
  // Numbers of replicas, since the last call, that started serving, and that left after serving.
  struct Changes {
    int64_t joined = 0;
    int64_t left = 0;
  };
  Changes TakeChanges();

 private:
  void Enter(Replica& replica, ReplicaState state, const std::string& why);
  void Leave(Replica& replica);
  void OnPublished(Replica& replica, absl::Time now);
  void OnNotPublished(Replica& replica, absl::Time now);
  // Marks the replica suspected; its next poll decides.
  void MarkSuspected(Replica& replica, absl::Time now);
  Replica* Awaited(const Poll& poll);

  const Options options_;
  std::map<std::string, Replica> replicas_;
  int64_t version_ = -1;
  int64_t trainer_incarnation_ = 0;
  int64_t epoch_ = 0;  // grows when an update begins or ends
  bool is_publishing_ = false;
  absl::Time publish_start_;
  bool has_members_ = false;
  std::vector<std::string> notes_;
  Changes changes_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MEMBERSHIP_H_
