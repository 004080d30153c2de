#include "tools/tandem/driver/teacher_client.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

absl::Status CheckLogProbs(const google::protobuf::RepeatedField<float>& values, int expected,
                           const char* what) {
  if (values.size() != expected) {
    return absl::InternalError(
        absl::StrFormat("expected %d %s, found %d", expected, what, values.size()));
  }
  for (int i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::InternalError(absl::StrCat(what, "[", i, "]: expected a finite number, found ",
                                            values[i], "; the teacher's weights may be damaged"));
  }
  return absl::OkStatus();
}

absl::Status CheckResponse(const rollout::v1::ScoreRequest& request,
                           const rollout::v1::ScoreResponse& response) {
  const int positions = std::max(0, request.token_ids_size() - 1);
  const int top = positions * request.num_top_logprobs();
  RETURN_IF_ERROR(CheckLogProbs(response.logprobs(), positions, "logprobs"));
  RETURN_IF_ERROR(CheckLogProbs(response.top_logprobs(), top, "top_logprobs"));
  if (response.top_token_ids_size() == top) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("expected %d top_token_ids, found %d", top, response.top_token_ids_size()));
}

}  // namespace

absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> TeacherClient::Score(
    const std::vector<rollout::v1::ScoreRequest>& requests) {
  std::vector<rollout::v1::ScoreResponse> out;
  for (absl::StatusOr<rollout::v1::ScoreResponse>& response :
       client_.Score(requests, ScoreClient::OnError::kCancelOthers)) {
    RETURN_IF_ERROR(response.status());
    RETURN_IF_ERROR(CheckResponse(requests[out.size()], *response)) << client_.name();
    out.push_back(*std::move(response));
  }
  return out;
}

}  // namespace tandem::driver
