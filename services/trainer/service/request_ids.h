// RequestIds: the contents of the trainer's recent requests, by request_id. A retry has the same
// contents; reusing an id with other contents is the caller's mistake.
//
// Used by the collective thread.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_IDS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_IDS_H_

#include <google/protobuf/message.h>

#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::trainer {

class RequestIds {
 public:
  explicit RequestIds(size_t max_kept = 4096) : max_kept_(max_kept) {}

  // Records the request. INVALID_ARGUMENT (REQUEST_ID_REUSED) if an earlier one with this id was
  // for another method or had other contents. Does not check an empty id. `contents` identifies the
  // request beside its id.
  absl::Status Check(const std::string& request_id, absl::string_view method,
                     absl::string_view contents);

 private:
  const size_t max_kept_;
  absl::flat_hash_map<std::string, std::string> digests_;  // by id
  std::deque<std::string> order_;                          // oldest first
};

// The contents that identify a request in RequestIds: everything but the lease, which is new when a
// later process of the run retries.
template <typename Request>
std::string ContentsOf(Request request) {
  request.clear_lease();
  return request.SerializeAsString();
}

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_IDS_H_
