#include "common/rpc/request_id.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::rpc {

absl::Status CheckRequestId(absl::string_view id, absl::string_view field) {
  if (id.size() <= kMaxRequestIdBytes) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("expected a UUID or another name of at most ",
                                          kMaxRequestIdBytes, " bytes; found ", id.size()));
}

}  // namespace tandem::rpc
