#include "tools/tandem/driver/rank_addresses.h"

#include "common/rpc/channel.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"

namespace tandem::driver {

std::vector<std::string> RankAddresses(const std::string& address, absl::Duration timeout) {
  auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address, {.retry = false}));
  const auto context = rpc::MakeContext(timeout);
  rollout::v1::GetServerInfoResponse info;
  const grpc::Status status = stub->GetServerInfo(context.get(), {}, &info);
  // For rank 0 keep the address that the caller uses.
  std::vector<std::string> out = {address};
  if (!status.ok()) return out;
  for (int rank = 1; rank < info.rank_addresses_size(); ++rank) {
    out.push_back(info.rank_addresses(rank));
  }
  return out;
}

}  // namespace tandem::driver
