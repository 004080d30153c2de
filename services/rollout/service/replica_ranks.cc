#include "services/rollout/service/replica_ranks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/local_address.h"
#include "common/comm/roll_call.h"
#include "common/host/cpu_list.h"
#include "common/net/host_port.h"
#include "common/rpc/transport_security.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/version/version.h"
#include "common/weights/manifest.h"
#include "services/rollout/runner/forward_pass.h"

namespace tandem::rollout {
namespace {

constexpr char kPrefix[] = "tandem-rollout";

// Processes of one launcher start at about the same time; reading a large model takes a while.
constexpr absl::Duration kJoinTimeout = absl::Minutes(5);

std::string AddressKey(int rank) { return absl::StrCat("address/", rank); }

// Returns the address at which others reach a server that listens on every interface.
absl::StatusOr<std::string> Reachable(const std::string& address, const std::string& leader) {
  ASSIGN_OR_RETURN(net::HostPort parsed, net::ParseHostPort(address));
  if (!net::IsAnyAddress(parsed)) return address;
  ASSIGN_OR_RETURN(parsed.host, comm::LocalAddressTowards(leader));
  return parsed.ToString();
}

// Waits, on rank 0, until every rank has reached the rendezvous.
absl::Status AwaitRanks(const comm::Rendezvous& rendezvous,
                        const comm::LaunchEnvironment& environment) {
  comm::RollCallOptions roll;
  roll.rendezvous = rendezvous;
  roll.rank = environment.rank;
  roll.size = environment.world_size;
  roll.timeout = kJoinTimeout;
  roll.on_missing = [&](const std::vector<int>& missing) {
    telemetry::LogInfo("waiting for ranks of the replica",
                       {{"missing", host::FormatCpuList(missing)},
                        {"ranks", environment.world_size},
                        {"rendezvous", absl::StrCat(rendezvous.host, ":", rendezvous.port)}});
  };
  return comm::CallRoll(roll);
}

}  // namespace

absl::Status CheckEnvironment(const config::v1::RunConfig& config,
                              const comm::LaunchEnvironment& environment) {
  const int64_t ranks = config.rollout().tensor_model_parallel_size();
  if (ranks != environment.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rollout.tensor_model_parallel_size is ", ranks, ", but the launcher started ",
        environment.world_size, " ranks of the replica (WORLD_SIZE); set them to the same number"));
  }
  if (environment.master_port == 0) {
    return absl::InvalidArgumentError(
        "MASTER_PORT: expected the port of the ranks' rendezvous, found none");
  }
  return comm::CheckGroupSecret(environment, rpc::TransportSecurity::OfProcess()->has_tls());
}

std::string DescribeRank(const model::Transformer& model, const CacheSize& size) {
  return absl::StrCat("version ", version::BuildVersion(), ", ", model.spec().architecture, " of ",
                      model.spec().num_parameters(), " parameters, ",
                      c10::toString(size.cache.dtype), ", ", size.cache.num_blocks, " blocks of ",
                      size.cache.block_size, " tokens",
                      model.expert_group() == nullptr ? "" : ", whole experts");
}

absl::StatusOr<std::unique_ptr<ReplicaRanks>> ReplicaRanks::Join(
    const config::v1::RunConfig& config, const comm::LaunchEnvironment& environment,
    at::Device device) {
  RETURN_IF_ERROR(CheckEnvironment(config, environment));
  RETURN_IF_ERROR(CheckDevice(device));
  auto ranks = std::make_unique<ReplicaRanks>();
  ranks->rendezvous_ = {environment.master_host, environment.master_port, kPrefix,
                        environment.group_secret};
  if (environment.rank == 0) {
    ASSIGN_OR_RETURN(ranks->server_,
                     comm::StoreServer::Start({.host = environment.master_host,
                                               .port = environment.master_port,
                                               .secret = environment.group_secret}));
  }
  RETURN_IF_ERROR(AwaitRanks(ranks->rendezvous_, environment));
  ranks->rendezvous_ = comm::AfterRollCall(std::move(ranks->rendezvous_));
  RankGroupOptions options;
  options.rank = environment.rank;
  options.size = environment.world_size;
  options.rendezvous = ranks->rendezvous_;
  options.timeout = absl::Seconds(config.rollout().collective_timeout_s());
  options.join_timeout = kJoinTimeout;
  options.shared_memory = config.rollout().shared_memory();
  options.device = device;
  ASSIGN_OR_RETURN(ranks->group_, RankGroup::Join(options));
  ASSIGN_OR_RETURN(ranks->client_, comm::StoreClient::Connect(ranks->rendezvous_, kJoinTimeout));
  return ranks;
}

absl::Status ReplicaRanks::TellAddress(const std::string& address, const std::string& description) {
  ASSIGN_OR_RETURN(const std::string reachable, Reachable(address, rendezvous_.host));
  return client_->Set(AddressKey(group_->rank()), absl::StrCat(reachable, " ", description));
}

absl::StatusOr<std::vector<std::string>> ReplicaRanks::AwaitAddresses(
    const std::string& description) {
  std::vector<std::string> addresses;
  for (int rank = 1; rank < group_->size(); ++rank) {
    const absl::StatusOr<std::string> text = client_->Get(AddressKey(rank), kJoinTimeout);
    RETURN_IF_ERROR(text.status()) << "rank " << rank << " of the replica";
    const size_t space = text->find(' ');
    if (text->substr(space + 1) != description) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " of the replica has ", text->substr(space + 1),
                       ", rank 0 has ", description, "; give all ranks the same configuration"));
    }
    addresses.push_back(text->substr(0, space));
  }
  return addresses;
}

}  // namespace tandem::rollout
