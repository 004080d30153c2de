#include "tools/tandem/driver/publish_retry.h"

#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

bool PublishRetry::MayTryAgain(const absl::Status& status, absl::Time now) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
      !absl::IsCancelled(status) && !absl::IsAborted(status)) {
    return false;
  }
  ++attempts_;
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  if (info.has_value() && info->reason() == kPublishedToNobody) {
    unanswered_ = 0;
    return attempts_ < 2 || now < give_up_;
  }
  return ++unanswered_ < kMaxUnanswered;
}

}  // namespace tandem::driver
