// PublishRetry: how long to retry an update that reached no replica, with
// trainer.update_policy=available.
//
//   PublishRetry retry(absl::Now(), patience);
//   absl::Status status = Publish();
//   while (!status.ok() && retry.MayTryAgain(status, absl::Now())) status = Publish();
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PUBLISH_RETRY_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PUBLISH_RETRY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::driver {

// For one update. Transient errors: UNAVAILABLE, DEADLINE_EXCEEDED, and CANCELLED and ABORTED, the
// results of a transfer that something else stopped. Any other error ends the run.
class PublishRetry {
 public:
  // Retries end after this many attempts in a row without a response from the trainer.
  static constexpr int kMaxUnanswered = 3;

  // While the trainer reports that no replica got the version (kPublishedToNobody), allows retries
  // for `patience`, and at least two attempts.
  PublishRetry(absl::Time start, absl::Duration patience) : give_up_(start + patience) {}

  // Call once for each failed attempt; returns whether to retry.
  bool MayTryAgain(const absl::Status& status, absl::Time now);

 private:
  const absl::Time give_up_;
  int attempts_ = 0;
  int unanswered_ = 0;  // in a row
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PUBLISH_RETRY_H_
