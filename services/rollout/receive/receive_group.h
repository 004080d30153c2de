// ReceiveGroup: this rank's membership in the update group, kept between updates.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_GROUP_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_GROUP_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "services/rollout/receive/receive_transport.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::rollout {

// Only the receiver's thread may call it, except current() and Stopper(), which are for any thread.
class ReceiveGroup {
 public:
  // `device`: of the tensors that the group carries.
  explicit ReceiveGroup(at::Device device) : device_(device) {}

  // Connects to the update's rendezvous store, and waits there for the leader's go key.
  absl::Status AwaitStart(const IncomingUpdate& update);

  // Returns the group of the rendezvous: the current one if it matches and works, else a new one,
  // whose ranks must find each other by `join_by`. Its operations end at the deadline.
  absl::StatusOr<comm::ProcessGroup*> Join(const common::v1::GroupRendezvous& rendezvous,
                                           absl::Time join_by, absl::Time deadline,
                                           const absl::Notification* cancel);

  // Leaves the group and closes its connections.
  void Drop();

  // The joined group, or null; any thread may abort it.
  std::shared_ptr<comm::ProcessGroup> current() const {
    absl::MutexLock lock(&mu_);
    return group_;
  }
  // Returns a function that aborts the joined group, if any.
  std::function<void(absl::string_view reason)> Stopper() const;

 private:
  absl::Status Reach(const common::v1::GroupRendezvous& rendezvous, absl::Time reach_by,
                     const absl::Notification* cancel);
  void UseRendezvous(const common::v1::GroupRendezvous& rendezvous);

  const at::Device device_;
  std::string key_;     // the serialised rendezvous without its secret
  std::string secret_;  // sent to store_
  std::unique_ptr<comm::StoreClient> store_;
  mutable absl::Mutex mu_;
  std::shared_ptr<comm::ProcessGroup> group_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_GROUP_H_
