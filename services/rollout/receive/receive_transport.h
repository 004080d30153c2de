// ReceiveTransport: a rollout rank's end of one transport. It checks the fields of BeginUpdate that
// only its transport reads, and moves an update's bytes into the sink. The trainer's end is
// services/trainer/publish/send_transport.h; for `stream` it is another rollout (live_stream.h).
//
//   TRANSPORT_BROADCAST         receive_by_broadcast.h
//   TRANSPORT_RESHARD, _DELTA   receive_by_reshard.h
//   TRANSPORT_STREAM            receive_by_stream.h
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_TRANSPORT_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_TRANSPORT_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/phase_times.h"
#include "common/weights/relay_table.h"
#include "tandem/common/v1/links.pb.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

// An open update, as its transport sees it. The referents outlive the transfer.
struct IncomingUpdate {
  const v1::BeginUpdateRequest& request;  // without manifest, buckets and relayed
  const weights::RelayedBuckets& relayed;
  absl::Time deadline;
  absl::Duration join_timeout;  // infinite: only the deadline applies
  const absl::Notification& cancel;

  // The time by which a connection or a group that is started now must be there.
  absl::Time join_by() const { return std::min(deadline, absl::Now() + join_timeout); }
};

// What a transfer reports.
struct IncomingTransfer {
  weights::PhaseTimes times;
  std::vector<common::v1::LinkReport> links;  // after success
  // The link in use, and whether its group had been created. A failure reports both: see
  // VerifyUpdate.
  const char* link = "rendezvous";
  bool joined = false;
};

// Threads: the receiver's worker, except Check(), CheckBuckets() and Stopper(), which any thread
// may call. One update at a time.
class ReceiveTransport {
 public:
  virtual ~ReceiveTransport() = default;

  // INVALID_ARGUMENT names the field that makes no sense for this transport.
  virtual absl::Status Check(const v1::BeginUpdateRequest& request) const = 0;
  // Validates the bucket table of a request that has one, and returns its plan.
  virtual absl::StatusOr<weights::TransferPlan> CheckBuckets(
      const v1::BeginUpdateRequest& request) const = 0;
  // Returns the plan by which the bytes come, if the rank has been told `plan`.
  virtual absl::StatusOr<std::shared_ptr<const weights::TransferPlan>> PlanFor(
      std::shared_ptr<const weights::TransferPlan> plan) const {
    return plan;
  }

  // Blocks until the leader lets the transfer start.
  virtual absl::Status AwaitStart(const IncomingUpdate& update) = 0;
  // Blocks until every bucket of the plan is in the sink. Errors: those of the links and the sink.
  virtual absl::Status Receive(const IncomingUpdate& update, const weights::TransferPlan& plan,
                               weights::BucketSink& sink, IncomingTransfer& transfer) = 0;
  // Names this rank's end for errors: "rank 3".
  virtual std::string Name(const v1::BeginUpdateRequest& request) const = 0;

  // After a failed update: leaves groups and frees buffers, which peers may still use.
  virtual void Drop() = 0;
  // Returns a function that ends the waits of the transfer in progress, and of no later one.
  virtual std::function<void(absl::string_view reason)> Stopper() = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_TRANSPORT_H_
