#include "services/trainer/service/request_validation.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/request_id.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

// Limit so that the response, four bytes a token, fits in one message.
constexpr int64_t kMaxScoredTokens = int64_t{3} << 20;

}  // namespace

absl::Status ValidateComputeLogProbs(const v1::ComputeLogProbsRequest& request,
                                     const SampleLimits& limits) {
  if (request.sequences_size() == 0) {
    return rpc::InvalidField("sequences", "expected at least one; found none");
  }
  int64_t num_tokens = 0;
  for (int s = 0; s < request.sequences_size(); ++s) {
    const v1::ComputeLogProbsRequest::Sequence& sequence = request.sequences(s);
    const std::string place = absl::StrCat("sequences[", s, "]");
    if (sequence.token_ids_size() == 0) {
      return rpc::InvalidField(absl::StrCat(place, ".token_ids"), "expected tokens; found none");
    }
    if (sequence.token_ids_size() > limits.max_position_embeddings) {
      return rpc::InvalidField(
          absl::StrCat(place, ".token_ids"),
          absl::StrCat("expected at most ", limits.max_position_embeddings,
                       " (max_position_embeddings); found ", sequence.token_ids_size()));
    }
    for (int i = 0; i < sequence.token_ids_size(); ++i) {
      if (sequence.token_ids(i) >= static_cast<uint64_t>(limits.vocab_size)) {
        return rpc::InvalidField(absl::StrCat(place, ".token_ids[", i, "]"),
                                 absl::StrCat(sequence.token_ids(i),
                                              " is outside the vocabulary of ", limits.vocab_size));
      }
    }
    if (!std::isfinite(sequence.temperature()) || sequence.temperature() < 0) {
      return rpc::InvalidField(
          absl::StrCat(place, ".temperature"),
          absl::StrCat("expected a number >= 0; found ", sequence.temperature()));
    }
    num_tokens += sequence.token_ids_size();
  }
  if (num_tokens > kMaxScoredTokens) {
    return rpc::InvalidField(
        "sequences", absl::StrCat("expected at most ", kMaxScoredTokens, " tokens in all; found ",
                                  num_tokens, "; split them over several calls"));
  }
  return absl::OkStatus();
}

absl::Status ValidateSaveCheckpoint(const v1::SaveCheckpointRequest& request) {
  RETURN_IF_ERROR(rpc::CheckRequestId(request.request_id()));
  return rpc::CheckEnums(request);
}

absl::Status ValidateLoadCheckpoint(const v1::LoadCheckpointRequest& request) {
  RETURN_IF_ERROR(rpc::CheckRequestId(request.request_id()));
  return rpc::CheckPolicyVersion("min_policy_version", request.min_policy_version(),
                                 rpc::NoVersion::kAllowed);
}

absl::Status ValidatePublishWeights(const v1::PublishWeightsRequest& request) {
  RETURN_IF_ERROR(rpc::CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(rpc::CheckPolicyVersion("policy_version", request.policy_version(),
                                          rpc::NoVersion::kAllowed));
  std::set<std::string> ids;
  for (int r = 0; r < request.replicas_size(); ++r) {
    const v1::RolloutReplica& replica = request.replicas(r);
    const std::string place = absl::StrCat("replicas[", r, "]");
    if (replica.replica_id().empty() || !ids.insert(replica.replica_id()).second) {
      return rpc::InvalidField(
          absl::StrCat(place, ".replica_id"),
          absl::StrCat("expected a unique name; found \"", replica.replica_id(), "\""));
    }
    if (replica.rank_addresses_size() == 0) {
      return rpc::InvalidField(absl::StrCat(place, ".rank_addresses"),
                               "expected HOST:PORT of each of its ranks; found none");
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
