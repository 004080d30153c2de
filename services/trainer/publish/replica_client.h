// ReplicaClient: the WeightService of every rank of one rollout replica.
//
// Calls go to all ranks at once and return when all have answered; errors name replica, rank,
// address and phase. Any thread, one call at a time.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_REPLICA_CLIENT_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_REPLICA_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"

namespace tandem::trainer {

// One rollout engine and the addresses HOST:PORT of its ranks. `resend`: send the version even if
// the replica has it, because its copy was found damaged.
struct ReplicaEndpoint {
  std::string id;
  std::vector<std::string> rank_addresses;
  bool resend = false;

  bool operator==(const ReplicaEndpoint&) const = default;
};

// One rank's response.
template <typename Response>
struct RankAnswer {
  absl::Status status;
  Response response;
};

class ReplicaClient {
 public:
  using Stub = rollout::v1::WeightService::Stub;

  explicit ReplicaClient(ReplicaEndpoint endpoint);

  const ReplicaEndpoint& endpoint() const { return endpoint_; }
  const std::string& id() const { return endpoint_.id; }
  bool repairs() const { return endpoint_.resend; }
  int num_ranks() const { return static_cast<int>(endpoint_.rank_addresses.size()); }
  Stub& stub(int rank) { return *stubs_[rank]; }

  // Returns "replica r0, rank 1 (127.0.0.1:5000), phase commit: ..." and keeps the status details.
  absl::Status Explain(int rank, const char* phase, const absl::Status& status) const;

 private:
  const ReplicaEndpoint endpoint_;
  std::vector<std::unique_ptr<Stub>> stubs_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_REPLICA_CLIENT_H_
