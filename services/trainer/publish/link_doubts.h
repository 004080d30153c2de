// LinkDoubts: tracks replicas that leave the chain for some updates because the link into them
// broke while both ends lived, and replicas that feed nobody because the link out of them broke.
//
//   doubts.BeginUpdate();
//   if (doubts.UpdatesLeft(id) > 0) ReadFromAnotherReplica(id);
//   doubts.OnBroken("r2", /*feeder=*/"r1");
//   doubts.OnCarried("r1");       // it got a version in the chain
//
// Exponential backoff: a replica whose link keeps breaking returns to the chain after 1, 2, 4 ...
// updates, at most kMostUpdates; each successful update halves that. So a bad link costs its
// deadline ever less often, and a repaired one comes back. Not thread-safe.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_LINK_DOUBTS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_LINK_DOUBTS_H_

#include <map>
#include <string>

namespace tandem::trainer {

class LinkDoubts {
 public:
  static constexpr int kMostUpdates = 64;

  // Counts one update.
  void BeginUpdate();
  // `feeder` is empty if the trainer fed it.
  void OnBroken(const std::string& fed, const std::string& feeder);
  void OnCarried(const std::string& id);
  // Call when the replica restarted or is gone.
  void Forget(const std::string& id) { doubts_.erase(id); }

  // Whether it must be the chain's last.
  bool IsLast(const std::string& id) const;
  // Updates until it returns to the chain; 0: it is in it.
  int UpdatesLeft(const std::string& id) const;

 private:
  struct Doubt {
    int updates = 0;  // backoff after the next failure, at least 1; doubles
    int apart = 0;    // updates left
    int last = 0;
  };
  std::map<std::string, Doubt> doubts_;  // by replica id
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_LINK_DOUBTS_H_
