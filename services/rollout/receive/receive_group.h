// ReceiveGroup: this rank's place in the update group, kept from one update to the next.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_GROUP_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_GROUP_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::rollout {

// All methods are called by the receiver's thread, except current(), which any thread may call.
class ReceiveGroup {
 public:
  // Connects to the rendezvous store, at most until `reach_by`.
  absl::Status Reach(const common::v1::GroupRendezvous& rendezvous, absl::Time reach_by,
                     const absl::Notification* cancel);
  // After Reach(): waits for `key` in the store.
  absl::Status WaitForKey(const std::string& key, absl::Time deadline,
                          const absl::Notification* cancel);

  // The group of the rendezvous: the present one where it is the same and works, else a new one,
  // whose ranks find each other until `join_by`. Its operations end at the deadline.
  absl::StatusOr<comm::ProcessGroup*> Join(const common::v1::GroupRendezvous& rendezvous,
                                           absl::Time join_by, absl::Time deadline,
                                           const absl::Notification* cancel);

  // Leaves the group, and closes its connections.
  void Drop();

  // The group that was joined, or null; to be aborted by any thread.
  std::shared_ptr<comm::ProcessGroup> current() const {
    absl::MutexLock lock(&mu_);
    return group_;
  }

 private:
  void UseRendezvous(const common::v1::GroupRendezvous& rendezvous);

  std::string key_;     // the rendezvous, serialised, but for its secret
  std::string secret_;  // that store_ has been shown
  std::unique_ptr<comm::StoreClient> store_;
  mutable absl::Mutex mu_;
  std::shared_ptr<comm::ProcessGroup> group_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_GROUP_H_
