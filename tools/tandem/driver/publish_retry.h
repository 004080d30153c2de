// PublishRetry: how long an elastic fleet's update that reached nobody is tried again.
//
//   PublishRetry retry(absl::Now(), patience);
//   while (!(status = Publish()).ok() && retry.MayTryAgain(status, absl::Now())) ...
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PUBLISH_RETRY_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PUBLISH_RETRY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::driver {

// One update. What passes: UNAVAILABLE and DEADLINE_EXCEEDED, and CANCELLED and ABORTED, which is
// how a transfer ends that something else has ended. Anything else is an error of the run.
class PublishRetry {
 public:
  // Of a trainer that does not answer.
  static constexpr int kMostUnanswered = 3;

  // While the trainer answers that no replica got the version (kPublishedToNobody), it is tried for
  // `patience`, and at least twice.
  PublishRetry(absl::Time start, absl::Duration patience) : give_up_(start + patience) {}

  // Call once for each attempt that failed.
  bool MayTryAgain(const absl::Status& status, absl::Time now);

 private:
  const absl::Time give_up_;
  int attempts_ = 0;
  int unanswered_ = 0;  // in a row
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PUBLISH_RETRY_H_
