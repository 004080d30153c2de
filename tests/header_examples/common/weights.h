// What the usage examples in common/weights leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_WEIGHTS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_WEIGHTS_H_

#include <vector>

#include "common/weights/holdings.h"

namespace tandem::weights::additive_digest_example {
extern std::vector<std::byte> first_half, second_half, whole;
extern int64_t size_bytes;
}  // namespace tandem::weights::additive_digest_example

namespace tandem::weights::broadcast_part_example {
extern TransferPlan plan;
extern ModelLayout two_ranks, four_ranks;
}  // namespace tandem::weights::broadcast_part_example

namespace tandem::weights::delta_codec_example {
extern std::vector<std::byte> base, next, coded;
extern absl::Span<std::byte> out, buffer;
inline constexpr header_examples::AnyFunction Send;
}  // namespace tandem::weights::delta_codec_example

namespace tandem::weights::delta_encoder_example {
extern DeviceOps& ops;
extern int64_t largest_message_bytes;
extern at::Tensor base, next;
extern EncodedDelta out;
inline constexpr header_examples::AnyFunction Send;
}  // namespace tandem::weights::delta_encoder_example

namespace tandem::weights::device_ops_example {
extern at::Tensor master;
extern int64_t bytes;
extern const float* from;
extern std::byte* to;
}  // namespace tandem::weights::device_ops_example

namespace tandem::weights::link_times_example {
extern comm::ProcessGroup& group;
extern int source;
extern int64_t bytes;
extern LinkTimes::Clock::time_point posted, arrived;
inline constexpr header_examples::AnyFunction Use;
}  // namespace tandem::weights::link_times_example

namespace tandem::weights::manifest_example {
extern model::ParameterTable table;
extern Manifest theirs;
}  // namespace tandem::weights::manifest_example

namespace tandem::weights::model_layout_example {
extern model::ModelSpec spec;
extern model::UnitLimits unit_limits;
}  // namespace tandem::weights::model_layout_example

namespace tandem::weights::network_model_example {
extern FleetPlan fleet;
extern int64_t model_bytes, bucket_bytes;
}  // namespace tandem::weights::network_model_example

namespace tandem::weights::relay_plan_example {
extern Holdings trainer;
extern ModelLayout four, two, one;
extern ReshardOptions options;
}  // namespace tandem::weights::relay_plan_example

namespace tandem::weights::relay_sender_example {
extern RelayedBuckets table;
extern comm::ProcessGroup* group;
extern UpdateMemory& memory;
extern PhaseTimes times;
extern int bucket;
}  // namespace tandem::weights::relay_sender_example

namespace tandem::weights::reshard_plan_example {
extern ModelLayout trainer, rollout;
extern comm::MeshShape mesh;
extern int rank;
inline constexpr header_examples::AnyFunction Process;
}  // namespace tandem::weights::reshard_plan_example

namespace tandem::weights::update_place_example {
extern c10::Device device;
extern UpdateBackends backends;
extern std::vector<common::v1::UpdatePlace> places;
extern common::v1::GroupRendezvous rendezvous;
}  // namespace tandem::weights::update_place_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_WEIGHTS_H_
