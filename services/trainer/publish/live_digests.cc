#include "services/trainer/publish/live_digests.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/digest.h"
#include "services/trainer/publish/rank_calls.h"

namespace tandem::trainer {

using rollout::v1::GetDigestsRequest;
using rollout::v1::GetDigestsResponse;

absl::StatusOr<TensorDigests> WholeDigests(const DataPlane& plane,
                                           const std::vector<TensorDigests>& ranks) {
  const weights::Manifest& tensors = plane.table(0).manifest;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (static_cast<int>(ranks[rank].size()) == tensors.tensors_size()) continue;
    return absl::DataLossError(absl::StrCat("rank ", rank, ": expected ", tensors.tensors_size(),
                                            " digests, found ", ranks[rank].size()));
  }
  TensorDigests whole;
  for (int i = 0; i < tensors.tensors_size(); ++i) {
    std::map<std::string, std::string> parts;  // digest by box
    weights::DigestSum sum;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const weights::TensorEntry& tensor = plane.table(static_cast<int>(rank)).manifest.tensors(i);
      const weights::TensorDigest& digest = ranks[rank][i];
      const auto [part, is_new] = parts.emplace(tensor.box().SerializeAsString(), digest.digest());
      if (digest.name() != tensor.name() || part->second != digest.digest()) {
        return absl::DataLossError(absl::StrCat("tensor ", tensor.name(), ": rank ", rank,
                                                " has digest ", digest.digest(), " of '",
                                                digest.name(), "', another ", part->second));
      }
      if (!is_new) continue;
      ASSIGN_OR_RETURN(const weights::DigestSum held, weights::ParseDigest(digest.digest()));
      sum.Add(held);
    }
    weights::TensorDigest& digest = whole.emplace_back();
    digest.set_name(tensors.tensors(i).name());
    digest.set_digest(sum.Hex());
  }
  return whole;
}

absl::StatusOr<TensorDigests> AskWholeDigests(const DataPlane& plane, ReplicaClient& replica,
                                              int64_t version, absl::Time deadline) {
  RETURN_IF_ERROR(plane.CheckReplica(replica.num_ranks()));
  RankCalls<GetDigestsRequest, GetDigestsResponse> calls({&replica});
  calls.Start(&WeightServiceAsync::GetDigests, deadline,
              [](int, int) { return GetDigestsRequest(); });
  calls.WaitUntil(absl::InfiniteFuture());  // each call has the deadline
  std::vector<TensorDigests> ranks;
  for (int rank = 0; rank < replica.num_ranks(); ++rank) {
    const auto& answer = calls.answers()[0][rank];
    RETURN_IF_ERROR(replica.Explain(rank, "digests", answer.status));
    if (answer.response.policy_version() != version) {
      return replica.Explain(
          rank, "digests",
          absl::FailedPreconditionError(absl::StrCat("version ", answer.response.policy_version(),
                                                     " is live, expected ", version)));
    }
    ranks.push_back({answer.response.digests().begin(), answer.response.digests().end()});
  }
  return WholeDigests(plane, ranks);
}

}  // namespace tandem::trainer
