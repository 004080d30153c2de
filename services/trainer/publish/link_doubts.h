// LinkDoubts: which replicas take no part in the chain for some updates, because the link into them
// broke while everybody lived, and which feed nobody, because the link out of them did.
//
//   doubts.BeginUpdate();
//   if (doubts.IsApart(id)) ...   // reads the version from another replica instead
//   doubts.OnBroken("r2", /*feeder=*/"r1");
//   doubts.OnCarried("r1");       // it got a version in the chain
//
// A replica whose link breaks again and again is tried in the chain after 1, 2, 4 ... updates, at
// most kMostUpdates; each update that works halves that again. So a bad link costs its deadline
// ever less often, and one that is mended comes back. Not thread-safe.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_LINK_DOUBTS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_LINK_DOUBTS_H_

#include <map>
#include <string>

namespace tandem::trainer {

class LinkDoubts {
 public:
  static constexpr int kMostUpdates = 64;

  // One update more has passed.
  void BeginUpdate();
  // `feeder` is empty where the trainer fed it.
  void OnBroken(const std::string& fed, const std::string& feeder);
  void OnCarried(const std::string& id);
  // It is another process now, or gone.
  void Forget(const std::string& id) { doubts_.erase(id); }

  bool IsApart(const std::string& id) const;
  // Whether it is to be the chain's last.
  bool IsLast(const std::string& id) const;
  // Updates until it is tried again.
  int UpdatesLeft(const std::string& id) const;

 private:
  struct Doubt {
    int updates = 0;  // that the next failure costs, at least 1; doubles
    int apart = 0;    // updates left
    int last = 0;
  };
  std::map<std::string, Doubt> doubts_;  // by replica id
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_LINK_DOUBTS_H_
