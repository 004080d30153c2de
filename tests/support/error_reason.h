// The stable reason of an error, for tests.
#ifndef TANDEM_TESTS_SUPPORT_ERROR_REASON_H_
#define TANDEM_TESTS_SUPPORT_ERROR_REASON_H_

#include <string>

#include "absl/status/status.h"
#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::testing {

// ErrorInfo.reason; empty where there is none.
inline std::string ReasonOf(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_ERROR_REASON_H_
