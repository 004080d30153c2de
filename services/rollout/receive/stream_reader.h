// StreamReader: reads the weights of another replica over gRPC, bucket by bucket: the `stream`
// transport's receiving end.
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
    int64_t bucket_bytes = int64_t{16} << 20;  // at most; what is read again where one breaks
    // A source that sends nothing for so long, over however many connections, is given up.
    absl::Duration patience = absl::Seconds(10);
  };
  struct Source {
    std::string address;  // HOST:PORT
    int64_t policy_version = 0;
    std::string manifest_digest;  // as both sides state it
    absl::Time deadline;
  };

  explicit StreamReader(Options options) : options_(options) {}

  // The plan of what is read: `manifest` cut into buckets.
  absl::StatusOr<weights::TransferPlan> Plan(const weights::Manifest& manifest) const;

  // Reads every bucket of Plan() into the sink, each once its digest has been found right. Where a
  // connection breaks or a bucket arrives damaged, connects again and goes on from the first bucket
  // that the sink has not got, until the deadline. Blocks; ends when `cancel` is notified and
  // Abort() called. Errors name the bucket: those of the sink; FAILED_PRECONDITION and ABORTED
  // where the source has not, or no longer, the version; UNAVAILABLE where it is given up;
  // DATA_LOSS where a bucket arrives damaged again and again; DEADLINE_EXCEEDED, CANCELLED.
  absl::Status Read(const Source& source, const weights::TransferPlan& plan,
                    weights::BucketSink& sink, const absl::Notification& cancel,
                    weights::PhaseTimes& times);

  // Ends the call under way. Any thread; the others are the receiver's.
  void Abort();

 private:
  class Call;
  struct Progress;

  // One connection: from the progress's next bucket until the last, or until it breaks.
  absl::Status ReadOnce(const Source& source, const weights::TransferPlan& plan,
                        weights::BucketSink& sink, const absl::Notification& cancel,
                        Progress& progress);

  const Options options_;
  absl::Mutex mu_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the call under way
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_STREAM_READER_H_
