#include "services/rollout/service/replica_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/config/load.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kAmple = absl::Seconds(60);

// A follower that joins at the store of a rank 0 that never does.
class Follower : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(store_, comm::StoreServer::Start());
    environment_.rank = 1;
    environment_.world_size = 2;
    environment_.master_port = store_->port();
    config_.mutable_rollout()->set_tensor_model_parallel_size(2);
  }

  // Waits until the follower has stored `key` below `prefix`.
  void Await(const std::string& prefix, const std::string& key) {
    comm::Rendezvous rendezvous;
    rendezvous.port = environment_.master_port;
    rendezvous.prefix = prefix;
    auto client = comm::StoreClient::Connect(rendezvous, kAmple);
    EXPECT_OK(client.status());
    if (client.ok()) {
      EXPECT_OK((*client)->Get(key, kAmple).status());
    }
  }

  absl::Status Join() const { return ReplicaRanks::Join(config_, environment_, at::kCPU).status(); }

  // Ends rank 0's store once `key` is there.
  absl::Status JoinUntil(const std::string& prefix, const std::string& key) {
    absl::Status joined;
    std::thread follower([&] { joined = Join(); });
    Await(prefix, key);
    store_.reset();
    follower.join();
    return joined;
  }

  // Far less than the five minutes in which all have to join.
  auto EndsSoonNamingRankZero() const {
    return StatusIs(absl::StatusCode::kUnavailable,
                    HasSubstr(absl::StrCat("127.0.0.1:", environment_.master_port)));
  }

  std::unique_ptr<comm::StoreServer> store_;
  comm::LaunchEnvironment environment_;
  config::v1::RunConfig config_ = config::DefaultRunConfig();
};

// Whether the follower has its next connection by then is of no matter.
TEST_F(Follower, AnnouncesItselfBeforeItJoinsAGroupAndEndsWithRankZero) {
  const absl::Time begin = absl::Now();
  EXPECT_THAT(JoinUntil("tandem-rollout/roll-call", "rank-1"), EndsSoonNamingRankZero());
  EXPECT_LT(absl::Now() - begin, absl::Minutes(2));
}

TEST_F(Follower, EndsWithRankZeroWhileItWaitsInTheGroup) {
  const absl::Time begin = absl::Now();
  EXPECT_THAT(JoinUntil("tandem-rollout/replica", "place/1"), EndsSoonNamingRankZero());
  EXPECT_LT(absl::Now() - begin, absl::Minutes(2));
}

}  // namespace
}  // namespace tandem::rollout
