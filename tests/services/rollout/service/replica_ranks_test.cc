#include "services/rollout/service/replica_ranks.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "common/config/load.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

TEST(ReplicaRanks, AFollowerAnnouncesItselfBeforeItJoinsAGroup) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<comm::StoreServer> store, comm::StoreServer::Start());
  comm::LaunchEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  environment.master_port = store->port();
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_rollout()->set_tensor_model_parallel_size(2);
  absl::Status joined;
  std::thread follower(
      [&] { joined = ReplicaRanks::Join(config, environment, at::kCPU).status(); });

  // Rank 0's roll call waits for this key, and names the ranks whose keys are missing.
  comm::Rendezvous rendezvous;
  rendezvous.port = store->port();
  rendezvous.prefix = "tandem-rollout/roll-call";
  auto client = comm::StoreClient::Connect(rendezvous, absl::Seconds(60));
  EXPECT_OK(client.status());
  if (client.ok()) {
    EXPECT_OK((*client)->Get("rank-1", absl::Seconds(60)).status());
  }
  store.reset();  // ends the follower's wait for rank 0
  follower.join();
  EXPECT_FALSE(joined.ok());
}

}  // namespace
}  // namespace tandem::rollout
