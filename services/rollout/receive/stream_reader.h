// StreamReader: receiver of the `stream` transport. Reads the weights of another replica over gRPC,
// bucket by bucket.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_STREAM_READER_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_STREAM_READER_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/weights/bucket_ends.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"

namespace tandem::rollout {

class StreamReader {
 public:
  struct Options {
    int64_t bucket_bytes = int64_t{16} << 20;  // at most; the unit of retries
    // Gives up on a source that sends nothing for this long, over any number of connections.
    absl::Duration patience = absl::Seconds(10);
  };
  struct Source {
    std::string address;  // HOST:PORT
    int64_t policy_version = 0;
    std::string manifest_digest;  // as computed by both sides
    absl::Time deadline;
  };

  explicit StreamReader(Options options) : options_(options) {}

  // Returns the transfer plan: `manifest`, all or only the trainable tensors, cut into buckets.
  absl::StatusOr<weights::TransferPlan> Plan(const weights::Manifest& manifest,
                                             bool keeps_frozen) const;

  // Reads every bucket of Plan() into the sink, each after its digest is verified. If a connection
  // breaks or a bucket arrives damaged, reconnects and resumes at the first bucket that the sink
  // lacks, until the deadline. Blocks; to stop it, notify `cancel` and call Abort(). Errors name
  // the bucket: those of the sink; FAILED_PRECONDITION or ABORTED if the source does not have
  // the version, or no longer has it; UNAVAILABLE if it gives up on the source; DATA_LOSS if a
  // bucket arrives damaged repeatedly; DEADLINE_EXCEEDED, CANCELLED.
  absl::Status Read(const Source& source, const weights::TransferPlan& plan,
                    weights::BucketSink& sink, const absl::Notification& cancel,
                    weights::PhaseTimes& times);

  // Cancels the call in flight. Any thread; the other methods are for the receiver's.
  void Abort();

 private:
  class Call;
  struct Progress;

  // One connection: reads from the progress's next bucket to the last, or until it breaks.
  absl::Status ReadOnce(const Source& source, const weights::TransferPlan& plan,
                        weights::BucketSink& sink, const absl::Notification& cancel,
                        Progress& progress);

  const Options options_;
  absl::Mutex mu_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the call in flight
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_STREAM_READER_H_
