// RequestIds: which contents the trainer's recent requests had, by their request_id: a repeat has
// the same, and an id that comes with others is a mistake of its caller.
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

  // Notes the request. INVALID_ARGUMENT (REQUEST_ID_REUSED) where an earlier one of this id was to
  // another method or had other contents. An empty id is not checked. `contents` is what identifies
  // the request beside its id.
  absl::Status Check(const std::string& request_id, absl::string_view method,
                     absl::string_view contents);

 private:
  const size_t max_kept_;
  absl::flat_hash_map<std::string, std::string> digests_;  // by id
  std::deque<std::string> order_;                          // the oldest first
};

// What identifies a request in RequestIds: all of it but the lease, which a repeat by a later
// process of the run has anew.
template <typename Request>
std::string ContentsOf(Request request) {
  request.clear_lease();
  return request.SerializeAsString();
}

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_REQUEST_IDS_H_
