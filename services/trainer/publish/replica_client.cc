#include "services/trainer/publish/replica_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"

namespace tandem::trainer {

ReplicaClient::ReplicaClient(ReplicaEndpoint endpoint) : endpoint_(std::move(endpoint)) {
  for (const std::string& address : endpoint_.rank_addresses) {
    rpc::ChannelOptions options;
    options.retry = false;  // a rank that is gone is to be seen at once
    stubs_.push_back(rollout::v1::WeightService::NewStub(rpc::MakeChannel(address, options)));
  }
}

absl::Status ReplicaClient::Explain(int rank, const char* phase, const absl::Status& status) const {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat("replica ", endpoint_.id, ", rank ", rank, " (",
                                               endpoint_.rank_addresses[rank], "), phase ", phase,
                                               ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

}  // namespace tandem::trainer
