#include "tools/tandem/driver/weight_check.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"

namespace tandem::driver {
namespace {

// The responses of one rank.
struct RankAnswer {
  absl::Status status;
  rollout::v1::GetManifestResponse held;
  rollout::v1::GetDigestsResponse live;
};

RankAnswer Ask(const std::string& address, absl::Duration timeout) {
  RankAnswer answer;
  auto stub = rollout::v1::WeightService::NewStub(rpc::MakeChannel(address));
  const auto call = [&](auto method, auto request, auto& response) -> absl::Status {
    request.set_request_id(rpc::NewUuid());
    rpc::SetDigest(request);
    const auto context = rpc::MakeContext(timeout);
    const grpc::Status status = ((*stub).*method)(context.get(), request, &response);
    RETURN_IF_ERROR(rpc::ExplainGarbled(rpc::FromGrpcStatus(status)));
    return rpc::CheckDigest(response, request.message_digest());
  };
  using Stub = rollout::v1::WeightService::Stub;
  answer.status = call(&Stub::GetManifest, rollout::v1::GetManifestRequest(), answer.held);
  if (!answer.status.ok()) return answer;
  answer.status = call(&Stub::GetDigests, rollout::v1::GetDigestsRequest(), answer.live);
  return answer;
}

absl::Status Compare(const trainer::v1::GetWeightDigestsResponse& trainer,
                     const trainer::v1::RolloutReplica& replica,
                     const std::vector<RankAnswer>& answers, ReplicaCheck& check) {
  std::vector<weights::RankDigests> ranks;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    RETURN_IF_ERROR(answers[rank].status)
        << "rank " << rank << " at " << replica.rank_addresses(static_cast<int>(rank));
    ranks.push_back({&answers[rank].held.manifest(), &answers[rank].live.digests()});
  }
  int64_t version = trainer.policy_version();
  for (size_t rank = 0; rank < answers.size() && version == trainer.policy_version(); ++rank) {
    version = answers[rank].live.policy_version();
    check.version_rank = static_cast<int>(rank);
  }
  if (version == trainer.policy_version()) {
    ASSIGN_OR_RETURN(check.differences, weights::CompareDigests(trainer.digests(), ranks));
  }
  check.policy_version = version;
  check.incarnation = answers.empty() ? 0 : answers.front().held.incarnation();
  return absl::OkStatus();
}

}  // namespace

std::vector<ReplicaCheck> CheckReplicas(const trainer::v1::GetWeightDigestsResponse& trainer,
                                        const std::vector<trainer::v1::RolloutReplica>& replicas,
                                        absl::Duration timeout) {
  std::vector<std::vector<std::future<RankAnswer>>> calls;
  for (const trainer::v1::RolloutReplica& replica : replicas) {
    calls.emplace_back();
    for (const std::string& address : replica.rank_addresses()) {
      calls.back().push_back(std::async(std::launch::async, Ask, address, timeout));
    }
  }
  std::vector<ReplicaCheck> checks;
  for (size_t i = 0; i < replicas.size(); ++i) {
    std::vector<RankAnswer> answers;
    for (std::future<RankAnswer>& call : calls[i]) answers.push_back(call.get());
    ReplicaCheck& check = checks.emplace_back();
    check.replica_id = replicas[i].replica_id();
    check.status = Compare(trainer, replicas[i], answers, check);
  }
  return checks;
}

}  // namespace tandem::driver
