#include "services/trainer/service/request_ids.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/rpc/status_conversion.h"

namespace tandem::trainer {

absl::Status RequestIds::Check(const std::string& request_id, absl::string_view method,
                               absl::string_view contents) {
  if (request_id.empty()) return absl::OkStatus();
  std::string digest = absl::StrCat(method, " ", hash::HexDigest(contents));
  const auto [found, is_new] = digests_.try_emplace(request_id, digest);
  if (!is_new) {
    if (found->second == digest) return absl::OkStatus();
    absl::Status status = rpc::InvalidField(
        "request_id", absl::StrCat("expected a new id, or the contents of the earlier call; found ",
                                   request_id, " with different contents"));
    return rpc::WithReason(std::move(status), "REQUEST_ID_REUSED", {{"request_id", request_id}});
  }
  order_.push_back(request_id);
  if (order_.size() > max_kept_) {
    digests_.erase(order_.front());
    order_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
