// TeacherClient: scores token sequences with one teacher, a rollout that samples nothing.
//
//   TeacherClient teacher({.name = "the teacher at host:5000",
//                          .address = [] { return "host:5000"; },
//                          .timeout_key = "teacher.timeout_s"});
//   ASSIGN_OR_RETURN(const auto responses, teacher.Score(requests));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_CLIENT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_CLIENT_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/score_client.h"

namespace tandem::driver {

// Thread-safe.
class TeacherClient {
 public:
  explicit TeacherClient(ScoreClient::Options options) : client_(std::move(options)) {}

  // ScoreClient::GetServerInfo().
  absl::StatusOr<rollout::v1::GetServerInfoResponse> GetServerInfo(
      absl::Duration timeout, const std::function<bool()>& interrupted) {
    return client_.GetServerInfo(timeout, interrupted);
  }

  // Returns a response for each request, in order, complete and finite. Errors: those of
  // ScoreClient::Score(), the first of which cancels the other requests; INTERNAL for a response that
  // breaks the contract.
  absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> Score(
      std::vector<rollout::v1::ScoreRequest> requests);

 private:
  ScoreClient client_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_CLIENT_H_
