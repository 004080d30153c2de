// What the usage examples in services/trainer/publish leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_PUBLISH_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_PUBLISH_H_

#include <map>
#include <string>
#include <vector>

#include "services/trainer/publish/reshard_follower.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer::digest_lanes_example {
extern std::vector<weights::DigestSum> sums;
extern v1::HeldDigests message;
}  // namespace tandem::trainer::digest_lanes_example

namespace tandem::trainer::group_deadline_example {
extern comm::ProcessGroup& world;
extern absl::Duration collective_timeout;
extern absl::Time deadline;
extern at::Tensor order;
}  // namespace tandem::trainer::group_deadline_example

namespace tandem::trainer::group_messages_example {
extern comm::ProcessGroup& world;
extern v1::PublishOrder order;
extern v1::SendReport report;
}  // namespace tandem::trainer::group_messages_example

namespace tandem::trainer::link_doubts_example {
extern LinkDoubts doubts;
extern std::string id;
inline constexpr header_examples::AnyFunction ReadFromAnotherReplica;
}  // namespace tandem::trainer::link_doubts_example

namespace tandem::trainer::rank_calls_example {
using rollout::v1::BeginUpdateRequest;
using rollout::v1::BeginUpdateResponse;
extern std::vector<ReplicaClient*> replicas;
extern absl::Time deadline;
extern BeginUpdateRequest request;
}  // namespace tandem::trainer::rank_calls_example

namespace tandem::trainer::send_by_reshard_example {
extern ReshardFeeds feeds;
extern comm::ProcessGroup& world;
extern absl::Duration timeout;
extern ReshardFollower& follower;
}  // namespace tandem::trainer::send_by_reshard_example

namespace tandem::trainer::shard_gather_source_example {
extern ShardGatherSource& source;
extern at::Tensor buffer;
extern weights::PhaseTimes times;
}  // namespace tandem::trainer::shard_gather_source_example

namespace tandem::trainer::stream_feed_example {
extern SendTransport& transport;
extern StreamFeed::Options options;
extern std::vector<ReplicaClient*> sources;
extern std::vector<StreamFeed::Reader> readers;
extern TensorDigests digests;
inline constexpr header_examples::AnyFunction Report;
}  // namespace tandem::trainer::stream_feed_example

namespace tandem::trainer::transfer_blame_example {
extern std::vector<TransferReport> reports;
extern int num_replicas;
}  // namespace tandem::trainer::transfer_blame_example

namespace tandem::trainer::update_attempt_example {
extern SendTransport& transport;
extern UpdateAttempt::Options options;
extern std::vector<ReplicaClient*> replicas;
extern std::vector<std::string> known;
extern std::vector<std::unique_ptr<comm::StoreClient>> stores;
extern UpdateAttempt::GetGroup get_group;
extern weights::PhaseTimes times;
}  // namespace tandem::trainer::update_attempt_example

namespace tandem::trainer::weight_publisher_example {
extern WeightPublisher::Options options;
extern int64_t version;
extern std::vector<ReplicaEndpoint> replicas;
extern absl::Duration timeout;
}  // namespace tandem::trainer::weight_publisher_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_PUBLISH_H_
