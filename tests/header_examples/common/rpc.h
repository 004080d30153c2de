// What the usage examples in common/rpc leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_RPC_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_RPC_H_

#include <vector>

#include "tandem/common/v1/error.pb.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::rpc::channel_example {
extern absl::Duration timeout;
extern rollout::v1::RolloutService::Stub* stub;
extern rollout::v1::GetServerInfoRequest request;
extern rollout::v1::GetServerInfoResponse info;
}  // namespace tandem::rpc::channel_example

namespace tandem::rpc::connection_gate_example {
extern net::HostPort address;
extern grpc::ServerBuilder builder;
inline constexpr auto FROM_FD =
    grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
extern std::shared_ptr<grpc::ServerCredentials> credentials;
extern std::unique_ptr<grpc::Server> server;
}  // namespace tandem::rpc::connection_gate_example

namespace tandem::rpc::enum_check_example {
extern rollout::v1::GetServerInfoRequest request;
extern rollout::v1::GetServerInfoResponse response;
extern common::v1::Sample sample;
}  // namespace tandem::rpc::enum_check_example

namespace tandem::rpc::exit_deadline_example {
extern std::unique_ptr<Server> server;
extern TerminationSignal termination;
extern absl::Duration grace;
inline constexpr absl::Duration kEndMargin = absl::Seconds(20);
}  // namespace tandem::rpc::exit_deadline_example

namespace tandem::rpc::message_digest_example {
extern rollout::v1::BeginUpdateRequest request;
extern rollout::v1::BeginUpdateResponse response;
}  // namespace tandem::rpc::message_digest_example

namespace tandem::rpc::policy_version_example {
extern rollout::v1::BeginUpdateRequest request;
extern int64_t policy_version_;
}  // namespace tandem::rpc::policy_version_example

namespace tandem::rpc::request_id_example {
extern rollout::v1::GenerateRequest request;
}  // namespace tandem::rpc::request_id_example

namespace tandem::rpc::samples_digest_example {
extern std::vector<common::v1::Sample> samples;
extern trainer::v1::TrainStepHeader header;
}  // namespace tandem::rpc::samples_digest_example

namespace tandem::rpc::server_example {
extern rollout::v1::RolloutService::Service rollout_service;
extern rollout::v1::WeightService::Service weight_service;
extern TerminationSignal termination;
}  // namespace tandem::rpc::server_example

namespace tandem::rpc::service_program_example {
extern const security::Role role;
int Run(const ServiceFlags& flags, TerminationSignal& termination);
}  // namespace tandem::rpc::service_program_example

namespace tandem::rpc::status_conversion_example {
extern rollout::v1::WeightService::Stub* stub;
extern grpc::ClientContext context;
extern rollout::v1::BeginUpdateRequest request;
extern rollout::v1::BeginUpdateResponse response;
}  // namespace tandem::rpc::status_conversion_example

namespace tandem::rpc::termination_signal_example {
extern std::unique_ptr<Server> server;
extern absl::Duration grace;
}  // namespace tandem::rpc::termination_signal_example

namespace tandem::rpc::transport_security_example {
extern SecurityOptions options;
}  // namespace tandem::rpc::transport_security_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_RPC_H_
