// What the usage examples in common/comm leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_COMM_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_COMM_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "common/comm/mesh_group.h"
#include "common/comm/socket_engine.h"
#include "common/comm/socket_links.h"

namespace tandem::comm::device_mesh_example {
extern MeshShape shape;
extern int rank;
extern DeviceMesh::GroupMaker make;
extern at::Tensor full, shard, gradients;
}  // namespace tandem::comm::device_mesh_example

namespace tandem::comm::device_sharing_example {
extern DeviceSharing& sharing;
extern at::Tensor bucket, buffer;
extern absl::Time deadline;
}  // namespace tandem::comm::device_sharing_example

namespace tandem::comm::doorbell_example {
extern Doorbell& bell;
bool ThereIsSomethingToDo();
}  // namespace tandem::comm::doorbell_example

namespace tandem::comm::gloo_links_example {
extern std::string host;
extern int rank, size;
extern StoreConnection* connection;
extern c10::intrusive_ptr<c10d::Store> store;
extern absl::Time deadline;
extern Cancelled cancelled;
extern c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options;
}  // namespace tandem::comm::gloo_links_example

namespace tandem::comm::link_agreement_example {
extern GroupOptions options;
}  // namespace tandem::comm::link_agreement_example

namespace tandem::comm::link_facts_example {
extern ProcessGroup* group;
extern Work* work;
}  // namespace tandem::comm::link_facts_example

namespace tandem::comm::link_guests_example {
extern int rank, num_admitted;
extern std::string secret, nonce;
extern std::vector<host::FileDescriptor> links;
extern host::FileDescriptor fd;
extern size_t index;
}  // namespace tandem::comm::link_guests_example

namespace tandem::comm::mesh_collectives_example {
extern int rank, size;
extern std::byte* full;
extern int64_t shard_bytes;
extern SocketEngine& engine;
extern std::shared_ptr<SocketCollective> collective;
}  // namespace tandem::comm::mesh_collectives_example

namespace tandem::comm::message_taker_example {
extern ProcessGroup& group;
extern at::Tensor tensor;
extern int from;
extern std::string tag;
extern MessageTaker& taker;
}  // namespace tandem::comm::message_taker_example

namespace tandem::comm::process_group_example {
extern at::Tensor full, shard;
}  // namespace tandem::comm::process_group_example

namespace tandem::comm::shareable_memory_example {
extern int64_t numel, size;
extern void* data;
inline constexpr header_examples::AnyFunction Hand;
}  // namespace tandem::comm::shareable_memory_example

namespace tandem::comm::store_protocol_example {
extern std::string secret, bytes;
extern absl::Time now;
extern size_t num_sent;
extern std::map<uint64_t, host::FileDescriptor> connections;
}  // namespace tandem::comm::store_protocol_example

namespace tandem::comm::wait_on_host_example {
extern ProcessGroup& group;
extern Work* work;
}  // namespace tandem::comm::wait_on_host_example

namespace tandem::comm::host_staging_group_example {
extern std::unique_ptr<ProcessGroup> host_group;
extern std::shared_ptr<device::Device> device;
extern at::Tensor bucket_on_the_gpu;
}  // namespace tandem::comm::host_staging_group_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_COMM_H_
