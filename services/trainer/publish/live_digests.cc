#include "services/trainer/publish/live_digests.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/replica_digests.h"
#include "services/trainer/publish/rank_calls.h"

namespace tandem::trainer {

using rollout::v1::GetDigestsRequest;
using rollout::v1::GetDigestsResponse;

absl::StatusOr<TensorDigests> AskWholeDigests(DataPlane& plane, ReplicaClient& replica,
                                              int64_t version, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::vector<ReplicaTables> tables, plane.TablesFor({replica.num_ranks()}));
  RankCalls<GetDigestsRequest, GetDigestsResponse> calls({&replica});
  calls.Start(&WeightServiceAsync::GetDigests, deadline,
              [](int, int) { return GetDigestsRequest(); });
  calls.WaitUntil(absl::InfiniteFuture());  // each call has the deadline
  std::vector<weights::RankDigests> ranks;
  for (int rank = 0; rank < replica.num_ranks(); ++rank) {
    const auto& answer = calls.answers()[0][rank];
    RETURN_IF_ERROR(replica.Explain(rank, "digests", answer.status));
    if (answer.response.policy_version() != version) {
      return replica.Explain(
          rank, "digests",
          absl::FailedPreconditionError(absl::StrCat("version ", answer.response.policy_version(),
                                                     " is live, expected ", version)));
    }
    ranks.push_back({&(*tables[0].ranks)[rank].manifest, &answer.response.digests()});
  }
  return weights::AddUpDigests(ranks);
}

}  // namespace tandem::trainer
