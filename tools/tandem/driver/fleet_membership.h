// FleetMembership: which rollout replicas there are and what state each is in, from the list of
// addresses, their answers to GetServerInfo, and the weight updates.
//
//   membership.SetMembers({{"rollout-0", "10.0.0.2:5001"}}, now);
//   for (const auto& poll : membership.DuePolls(now)) ...  // ask; then OnAnswer() or OnSilence()
//   std::vector<ReplicaAddress> there = membership.BeginPublish(false, now);
//   membership.EndPublish(version, committed, now);
//
// It asks nobody and starts no thread: the time is given, so that a test advances it by hand.
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
    // Between questions to one replica.
    absl::Duration poll_interval = absl::Milliseconds(500);
    // The longest pause between questions to one that is LOST; it doubles until then.
    absl::Duration longest_pause = absl::Seconds(8);
    // So many questions in a row without an answer make a replica LOST; after a failed request,
    // one.
    int misses_until_lost = 3;
    // A replica that answers, but got none of so many versions in a row, is backed off from: no
    // version is published to it for a pause that begins with the time that the last one cost, at
    // least `first_backoff`, and doubles with each failure more, up to the larger of
    // `longest_backoff` and kMostBackoff times that cost.
    int failures_until_backoff = 2;
    absl::Duration first_backoff = absl::Seconds(5);
    absl::Duration longest_backoff = absl::Minutes(5);
  };
  static constexpr int kMostBackoff = 16;

  struct Replica {
    ReplicaAddress address;
    ReplicaState state = ReplicaState::kJoining;
    int64_t policy_version = -1;  // that it answered or committed last
    std::string last_error;       // why it is LOST
    bool suspected = false;       // a call failed; the next answer decides
    bool is_in_list = true;

    bool takes_requests() const {
      return !suspected && (state == ReplicaState::kServing || state == ReplicaState::kUpdating);
    }

    // It answers, and does not drain.
    bool is_there() const {
      return takes_requests() || (!suspected && state == ReplicaState::kStale);
    }

    // Of FleetMembership.
    std::string instance_id;
    int64_t committed = -1;   // version that this process committed last, of those published here
    bool has_served = false;  // since it joined
    bool is_first = false;    // was there at the start
    bool being_asked = false;
    int misses = 0;
    bool was_published_to = false;  // by the update under way
    // Two for each version that did not reach it, less one for each that did: one that flaps is
    // backed off from sooner.
    int strikes = 0;
    absl::Time backs_off_until = absl::InfinitePast();
    absl::Time next_poll = absl::InfinitePast();
    absl::Duration pause;
  };

  // A question to be put. Its answer counts only if nothing was published meanwhile.
  struct Poll {
    ReplicaAddress address;
    int64_t epoch = 0;
  };

  explicit FleetMembership(Options options) : options_(options) {}

  // A replica serves only where its weights are of this trainer; 0, the default: of any.
  void SetTrainer(int64_t incarnation) { trainer_incarnation_ = incarnation; }

  // The list of addresses as it is now. One that is new joins; one that is gone is DRAINING until
  // Forget(). An id with another address is another replica.
  void SetMembers(const std::vector<ReplicaAddress>& members, absl::Time now);

  // Marks those as being asked.
  std::vector<Poll> DuePolls(absl::Time now);
  void OnAnswer(const Poll& poll, const rollout::v1::GetServerInfoResponse& info, absl::Time now);
  void OnSilence(const Poll& poll, const absl::Status& error, absl::Time now);

  // A request failed there: it takes no more until it has answered.
  void Suspect(const std::string& id, const absl::Status& error, absl::Time now);

  // A DRAINING replica that is not in the list has no more requests.
  void Forget(const std::string& id);

  // The replicas to publish to: those that answer and do not drain, with `with_joining` those that
  // have not answered yet as well. Those that are backed off from are left out while there are
  // others. They are UPDATING until EndPublish(), which gets the ids of those that have committed
  // `version`; the others are asked how they are.
  std::vector<ReplicaAddress> BeginPublish(bool with_joining, absl::Time now);
  void EndPublish(int64_t version, const std::set<std::string>& committed, absl::Time now);
  // Nothing was published. Those that it was meant for are asked how they are before they count.
  void AbandonPublish(absl::Time now);
  bool AnyIsThere() const;

  const std::map<std::string, Replica>& replicas() const { return replicas_; }  // by id
  const Replica* Find(const std::string& id) const;
  int Count(ReplicaState state) const;
  // Whether a replica lacks the version that was published last, and is not backed off from.
  bool AnyWantsWeights(absl::Time now) const;
  // Replicas that are backed off from.
  int CountBackingOff(absl::Time now) const;
  // The version that was published last; -1 before the first.
  int64_t version() const { return version_; }
  // When the next DuePolls() has something.
  absl::Time NextPoll() const;

  // What happened since the last call, as lines for the user.
  std::vector<std::string> TakeNotes();
  // Replicas that began to serve, and that served and left, since the last call.
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
  // The next answer decides, or its absence.
  void Doubt(Replica& replica, absl::Time now);
  Replica* Awaited(const Poll& poll);

  const Options options_;
  std::map<std::string, Replica> replicas_;
  int64_t version_ = -1;
  int64_t trainer_incarnation_ = 0;
  int64_t epoch_ = 0;  // grows when versions change hands
  bool is_publishing_ = false;
  absl::Time publish_start_;
  bool has_members_ = false;
  std::vector<std::string> notes_;
  Changes changes_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MEMBERSHIP_H_
