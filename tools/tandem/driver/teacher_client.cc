#include "tools/tandem/driver/teacher_client.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

// How many values a response has.
struct Sizes {
  int positions = 0;
  int top = 0;
};

Sizes SizesOf(const rollout::v1::ScoreRequest& request) {
  const int first = static_cast<int>(std::max<int64_t>(1, request.first_scored_token()));
  const int positions = std::max(0, request.token_ids_size() - first);
  return {positions, positions * request.num_top_logprobs()};
}

absl::Status CheckResponse(const Sizes& sizes, const rollout::v1::ScoreResponse& response) {
  const int top = sizes.top;
  RETURN_IF_ERROR(CheckLogProbs(response.logprobs(), sizes.positions, "logprobs"));
  RETURN_IF_ERROR(CheckLogProbs(response.top_logprobs(), top, "top_logprobs"));
  if (response.top_token_ids_size() == top) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("expected %d top_token_ids, found %d", top, response.top_token_ids_size()));
}

}  // namespace

absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> TeacherClient::Score(
    std::vector<rollout::v1::ScoreRequest> requests) {
  std::vector<Sizes> sizes;
  for (const rollout::v1::ScoreRequest& request : requests) sizes.push_back(SizesOf(request));
  std::vector<rollout::v1::ScoreResponse> out;
  for (absl::StatusOr<rollout::v1::ScoreResponse>& response :
       client_.Score(std::move(requests), ScoreClient::OnError::kCancelOthers)) {
    RETURN_IF_ERROR(response.status());
    RETURN_IF_ERROR(CheckResponse(sizes[out.size()], *response)) << client_.name();
    out.push_back(*std::move(response));
  }
  return out;
}

}  // namespace tandem::driver
