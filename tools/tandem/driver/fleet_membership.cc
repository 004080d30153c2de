#include "tools/tandem/driver/fleet_membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/version/version.h"

namespace tandem::driver {

using rollout::v1::GetServerInfoResponse;

void FleetMembership::SetMembers(const std::vector<ReplicaAddress>& members, absl::Time now) {
  std::set<std::string> ids;
  for (const ReplicaAddress& member : members) {
    ids.insert(member.id);
    Replica& replica = replicas_[member.id];
    if (replica.address == member) {
      if (replica.is_in_list) continue;
      replica.is_in_list = true;  // was removed from the list and is back
      Enter(replica, ReplicaState::kJoining, "it is in the list of endpoints again");
    } else {
      if (!replica.address.id.empty()) Leave(replica);
      replica = Replica{};
      replica.address = member;
      replica.is_first = !has_members_;
      if (!replica.is_first) {
        notes_.push_back(absl::StrCat(member.id, " at ", member.address, " joins"));
      }
    }
    replica.next_poll = now;
  }
  has_members_ = true;
  for (auto& [id, replica] : replicas_) {
    if (ids.contains(id) || !replica.is_in_list) continue;
    replica.is_in_list = false;
    if (replica.state != ReplicaState::kDraining) {
      Enter(replica, ReplicaState::kDraining, "it is no longer in the list of endpoints");
    }
  }
}

std::vector<FleetMembership::Poll> FleetMembership::DuePolls(absl::Time now) {
  std::vector<Poll> due;
  for (auto& [id, replica] : replicas_) {
    if (replica.is_polled || !replica.is_in_list || replica.next_poll > now) continue;
    replica.is_polled = true;
    due.push_back({replica.address, epoch_});
  }
  return due;
}

absl::Time FleetMembership::NextPoll() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_polled && replica.is_in_list) next = std::min(next, replica.next_poll);
  }
  return next;
}

FleetMembership::Replica* FleetMembership::Awaited(const Poll& poll) {
  const auto found = replicas_.find(poll.address.id);
  if (found == replicas_.end() || !(found->second.address == poll.address)) return nullptr;
  found->second.is_polled = false;
  return found->second.is_in_list ? &found->second : nullptr;
}

void FleetMembership::OnAnswer(const Poll& poll, const GetServerInfoResponse& info,
                               absl::Time now) {
  Replica* const replica = Awaited(poll);
  if (replica == nullptr) return;
  replica->next_poll = now + options_.poll_interval;
  replica->misses = 0;
  replica->suspected = false;
  const bool restarted =
      !replica->instance_id.empty() && replica->instance_id != info.instance_id();
  if (restarted) {
    Leave(*replica);
    notes_.push_back(absl::StrCat(replica->address.id, " has restarted"));
    replica->policy_version = -1;
    replica->committed = -1;
    replica->strikes = 0;
    replica->backs_off_until = absl::InfinitePast();
  }
  if (replica->instance_id != info.instance_id()) {
    const std::string other =
        version::DescribeOtherBuild(replica->address.id, info.build_version());
    if (!other.empty()) notes_.push_back(other);
  }
  replica->instance_id = info.instance_id();
  if (replica->state == ReplicaState::kLost) {
    Enter(*replica, ReplicaState::kJoining, "it responds again");
  }
  if (info.state() == rollout::v1::ROLLOUT_STATE_DRAINING) {
    Enter(*replica, ReplicaState::kDraining, "it is stopping");
    return;
  }
  if (poll.epoch != epoch_) {  // an update began or ended meanwhile
    replica->next_poll = now;
    return;
  }
  if (info.policy_version() < replica->policy_version) {
    Enter(*replica, ReplicaState::kStale,
          absl::StrFormat("its version went back from %d to %d", replica->policy_version,
                          info.policy_version()));
    return;
  }
  replica->policy_version = info.policy_version();
  const bool is_foreign = trainer_incarnation_ != 0 && info.policy_version() >= 0 &&
                          info.incarnation() != trainer_incarnation_;
  if (is_publishing_ && replica->state == ReplicaState::kUpdating && !restarted) return;
  // The same version number from another incarnation of the trainer is a different version.
  const bool has_it =
      info.policy_version() >= 0 && !is_publishing_ && !is_foreign &&
      (version_ < 0 || (info.policy_version() == version_ && replica->committed == version_));
  if (has_it) {
    Enter(*replica, ReplicaState::kServing, absl::StrCat("version ", info.policy_version()));
  } else {
    Enter(*replica, ReplicaState::kStale,
          info.policy_version() < 0 ? "it has no weights yet"
          : is_foreign ? absl::StrFormat("it has version %d of another trainer, incarnation %d",
                                         info.policy_version(), info.incarnation())
                       : absl::StrCat("it has version ", info.policy_version()));
  }
}

void FleetMembership::OnSilence(const Poll& poll, const absl::Status& error, absl::Time now) {
  Replica* const replica = Awaited(poll);
  if (replica == nullptr) return;
  replica->last_error = std::string(error.message());
  if (replica->state == ReplicaState::kLost) {
    replica->pause = std::min(replica->pause * 2, options_.longest_pause);
  } else if (++replica->misses >= options_.misses_until_lost) {
    replica->pause = options_.poll_interval;
    replica->suspected = false;
    Enter(*replica, ReplicaState::kLost, replica->last_error);
  } else {
    replica->pause = options_.poll_interval;
  }
  replica->next_poll = now + replica->pause;
}

void FleetMembership::Suspect(const std::string& id, const absl::Status& error, absl::Time now) {
  const auto found = replicas_.find(id);
  if (found == replicas_.end()) return;
  Replica& replica = found->second;
  if (!replica.takes_requests()) return;
  replica.last_error = std::string(error.message());
  MarkSuspected(replica, now);
}

void FleetMembership::Forget(const std::string& id) {
  const auto found = replicas_.find(id);
  if (found == replicas_.end() || found->second.is_in_list) return;
  notes_.push_back(absl::StrCat(id, " has left"));
  replicas_.erase(found);
}

std::vector<ReplicaAddress> FleetMembership::BeginPublish(bool with_joining, absl::Time now) {
  std::vector<Replica*> there;
  for (auto& [id, replica] : replicas_) {
    replica.was_published_to = false;
    if (replica.state == ReplicaState::kLost || replica.state == ReplicaState::kDraining) continue;
    if (!with_joining && !replica.is_reachable()) continue;
    there.push_back(&replica);
  }
  const bool any_works = std::any_of(there.begin(), there.end(), [now](const Replica* replica) {
    return replica->backs_off_until <= now;
  });
  std::vector<ReplicaAddress> out;
  for (Replica* replica : there) {
    if (any_works && replica->backs_off_until > now) continue;
    if (replica->state == ReplicaState::kServing) replica->state = ReplicaState::kUpdating;
    replica->was_published_to = true;
    out.push_back(replica->address);
  }
  is_publishing_ = true;
  publish_start_ = now;
  ++epoch_;
  return out;
}

void FleetMembership::EndPublish(int64_t version, const std::set<std::string>& committed,
                                 absl::Time now) {
  is_publishing_ = false;
  version_ = version;
  ++epoch_;
  for (auto& [id, replica] : replicas_) {
    const bool was_published_to = std::exchange(replica.was_published_to, false);
    if (committed.contains(id)) {
      OnPublished(replica, now);
    } else if (was_published_to) {
      OnNotPublished(replica, now);
    }
    if (replica.state != ReplicaState::kUpdating && !committed.contains(id)) continue;
    if (replica.state == ReplicaState::kLost || replica.state == ReplicaState::kDraining) continue;
    if (committed.contains(id)) {
      replica.policy_version = version;
      replica.committed = version;
      replica.suspected = false;
      Enter(replica, ReplicaState::kServing, absl::StrCat("version ", version));
    } else {
      Enter(replica, ReplicaState::kStale, absl::StrCat("version ", version, " is not live on it"));
      MarkSuspected(replica, now);
    }
  }
}

void FleetMembership::OnPublished(Replica& replica, absl::Time now) {
  if (replica.backs_off_until > absl::InfinitePast()) {
    notes_.push_back(absl::StrCat(replica.address.id, " at ", replica.address.address,
                                  " accepts weights again"));
  }
  replica.backs_off_until = absl::InfinitePast();
  replica.strikes = std::max(0, replica.strikes - 1);
}

void FleetMembership::OnNotPublished(Replica& replica, absl::Time now) {
  // A replica that does not respond either: polls handle it.
  if (replica.state == ReplicaState::kLost || replica.state == ReplicaState::kDraining) return;
  constexpr int kMostDoublings = 16;
  const int limit = 2 * options_.failures_until_backoff;
  replica.strikes = std::min(replica.strikes + 2, limit + 2 * kMostDoublings);
  if (replica.strikes < limit) return;
  const absl::Duration cost = std::max(options_.first_backoff, now - publish_start_);
  const absl::Duration longest = std::max(options_.longest_backoff, kMaxBackoffFactor * cost);
  const absl::Duration pause = std::min(cost * (1 << ((replica.strikes - limit) / 2)), longest);
  replica.backs_off_until = now + pause;
  notes_.push_back(absl::StrCat(replica.address.id, " at ", replica.address.address,
                                " responds, but does not accept weights: skipping it for ",
                                absl::FormatDuration(absl::Trunc(pause, absl::Milliseconds(100)))));
}

bool FleetMembership::AnyWantsWeights(absl::Time now) const {
  return std::any_of(replicas_.begin(), replicas_.end(), [now](const auto& entry) {
    return entry.second.state == ReplicaState::kStale && entry.second.backs_off_until <= now;
  });
}

int FleetMembership::CountBackingOff(absl::Time now) const {
  return static_cast<int>(
      std::count_if(replicas_.begin(), replicas_.end(),
                    [now](const auto& entry) { return entry.second.backs_off_until > now; }));
}

void FleetMembership::AbandonPublish(absl::Time now) {
  is_publishing_ = false;
  ++epoch_;
  for (auto& [id, replica] : replicas_) {
    if (replica.state == ReplicaState::kUpdating) replica.state = ReplicaState::kServing;
    if (replica.is_reachable()) MarkSuspected(replica, now);
  }
}

void FleetMembership::MarkSuspected(Replica& replica, absl::Time now) {
  replica.suspected = true;
  replica.misses = std::max(replica.misses, options_.misses_until_lost - 1);
  replica.next_poll = now;
}

bool FleetMembership::AnyIsReachable() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const auto& entry) { return entry.second.is_reachable(); });
}

const FleetMembership::Replica* FleetMembership::Find(const std::string& id) const {
  const auto found = replicas_.find(id);
  return found == replicas_.end() ? nullptr : &found->second;
}

int FleetMembership::Count(ReplicaState state) const {
  return static_cast<int>(std::count_if(replicas_.begin(), replicas_.end(), [&](const auto& entry) {
    return entry.second.state == state;
  }));
}

void FleetMembership::Enter(Replica& replica, ReplicaState state, const std::string& why) {
  if (replica.state == state) return;
  const bool begins = state == ReplicaState::kServing && !replica.has_served;
  const bool is_news =
      state == ReplicaState::kLost || state == ReplicaState::kDraining ||
      replica.state == ReplicaState::kLost || (begins && !replica.is_first) ||
      (state == ReplicaState::kStale && replica.has_served) ||
      (replica.state == ReplicaState::kStale && state == ReplicaState::kServing && !begins);
  replica.state = state;
  if (begins) {
    replica.has_served = true;
    ++changes_.joined;
  }
  if (state == ReplicaState::kLost || state == ReplicaState::kDraining) Leave(replica);
  if (is_news) {
    notes_.push_back(absl::StrCat(replica.address.id, " at ", replica.address.address, " is ",
                                  NameOf(state), ": ", why));
  }
}

void FleetMembership::Leave(Replica& replica) {
  if (replica.has_served) ++changes_.left;
  replica.has_served = false;
  replica.is_first = false;
}

std::vector<std::string> FleetMembership::TakeNotes() { return std::exchange(notes_, {}); }

FleetMembership::Changes FleetMembership::TakeChanges() { return std::exchange(changes_, {}); }

}  // namespace tandem::driver
