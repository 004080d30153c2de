#include "services/trainer/publish/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {
namespace {

using rollout::v1::BeginUpdateRequest;
using ::testing::ElementsAre;

// Replicas r0, r1, ... of so many ranks; rank k of replica i is at host i, port 1000 + k.
class Fleet {
 public:
  explicit Fleet(const std::vector<int>& ranks) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      ReplicaEndpoint endpoint{absl::StrCat("r", i), {}};
      for (int rank = 0; rank < ranks[i]; ++rank) {
        endpoint.rank_addresses.push_back(absl::StrCat("127.0.0.", i + 1, ":", 1000 + rank));
      }
      owned_.push_back(std::make_unique<ReplicaClient>(endpoint));
      clients.push_back(owned_.back().get());
    }
  }
  std::vector<ReplicaClient*> clients;

 private:
  std::vector<std::unique_ptr<ReplicaClient>> owned_;
};

BeginUpdateRequest Filled(const Route& route, const Fleet& fleet, Route::Receiver receiver,
                          bool delta = false) {
  common::v1::GroupRendezvous rendezvous;
  rendezvous.set_host("h");
  rendezvous.set_prefix("u");
  BeginUpdateRequest request;
  route.Fill(fleet.clients, receiver, delta, rendezvous, request);
  return request;
}

TEST(StarRoute, AllRanksAreInOneGroupAfterTheLeader) {
  const Fleet fleet({2, 1});
  const BeginUpdateRequest request = Filled(StarRoute(), fleet, {1, 0});
  EXPECT_EQ(request.transport(), common::v1::TRANSPORT_BROADCAST);
  EXPECT_EQ(request.rendezvous().host(), "h");
  EXPECT_EQ(request.rendezvous().prefix(), "u");
  EXPECT_EQ(request.rendezvous().rank(), 3);
  EXPECT_EQ(request.rendezvous().size(), 4);
  EXPECT_FALSE(request.has_forward());
  EXPECT_EQ(StarRoute().LeaderGroupSize(fleet.clients), 4);
  EXPECT_THAT(StarRoute().GroupPrefixes("u", 2), ElementsAre("u"));
  EXPECT_EQ(StarRoute().SenderName(fleet.clients, {1, 0}, 0), "trainer/0");
}

TEST(StarRoute, RanksPassPartsToTheSameRankOfTheNextReplicaOfTheirSize) {
  const Fleet fleet({2, 1, 2, 1, 2});
  const BeginUpdateRequest first = Filled(StarRoute(), fleet, {0, 1});
  EXPECT_EQ(first.rendezvous().rank(), 2);
  EXPECT_FALSE(first.has_fed_by());
  EXPECT_EQ(first.forward_to(), 5);
  const BeginUpdateRequest second = Filled(StarRoute(), fleet, {2, 1});
  EXPECT_EQ(second.rendezvous().rank(), 5);
  EXPECT_EQ(second.fed_by(), 2);
  EXPECT_EQ(second.forward_to(), 8);
  const BeginUpdateRequest last = Filled(StarRoute(), fleet, {4, 1});
  EXPECT_EQ(last.fed_by(), 5);
  EXPECT_EQ(last.forward_to(), 0);
  EXPECT_EQ(Filled(StarRoute(), fleet, {1, 0}).forward_to(), 6);
  EXPECT_EQ(Filled(StarRoute(), fleet, {3, 0}).fed_by(), 3);
  EXPECT_EQ(StarRoute().SenderName(fleet.clients, {2, 1}, 2), "r0/1");
  EXPECT_EQ(StarRoute().SenderName(fleet.clients, {3, 0}, 3), "r1/0");
  EXPECT_EQ(StarRoute().SenderName(fleet.clients, {4, 1}, 5), "r2/1");
}

TEST(StarRoute, RanksThatAllHoldEverythingForwardNothing) {
  const Fleet fleet({1, 1});
  EXPECT_EQ(Filled(StarRoute(), fleet, {0, 0}).forward_to(), 0);
  EXPECT_FALSE(Filled(StarRoute(), fleet, {1, 0}).has_fed_by());
}

TEST(ChainRoute, TheTrainerFeedsTheFirstReplicaWhichForwardsBucketsAsTheyAre) {
  const Fleet fleet({2, 2});
  const ChainRoute route(3);
  const BeginUpdateRequest first = Filled(route, fleet, {0, 1});
  EXPECT_EQ(first.transport(), common::v1::TRANSPORT_RESHARD);
  EXPECT_EQ(first.rendezvous().prefix(), "u");
  EXPECT_EQ(first.rendezvous().rank(), 4);
  EXPECT_EQ(first.rendezvous().size(), 5);
  EXPECT_FALSE(first.has_fed_by());
  EXPECT_EQ(first.forward().prefix(), "u/link/1");
  EXPECT_EQ(first.forward().rank(), 1);
  EXPECT_EQ(first.forward_to(), 3);
  EXPECT_FALSE(first.relays());
  const BeginUpdateRequest second = Filled(route, fleet, {1, 1}, /*delta=*/true);
  EXPECT_EQ(second.transport(), common::v1::TRANSPORT_DELTA);
  EXPECT_EQ(second.rendezvous().prefix(), "u/link/1");
  EXPECT_EQ(second.rendezvous().rank(), 3);
  EXPECT_EQ(second.fed_by(), 1);
  EXPECT_FALSE(second.has_forward());
  EXPECT_EQ(route.LeaderGroupSize(fleet.clients), 5);
  EXPECT_THAT(route.GroupPrefixes("u", 3), ElementsAre("u", "u/link/1", "u/link/2"));
  EXPECT_EQ(route.SenderName(fleet.clients, {0, 1}, 2), "trainer/2");
  EXPECT_EQ(route.SenderName(fleet.clients, {1, 1}, 1), "r0/1");
}

TEST(ChainRoute, ASmallerReplicaIsFedWithPartsOfBuckets) {
  const Fleet fleet({2, 1});
  const ChainRoute route(1);
  const BeginUpdateRequest first = Filled(route, fleet, {0, 0});
  EXPECT_TRUE(first.relays());
  EXPECT_EQ(first.forward_to(), 0);
  EXPECT_FALSE(Filled(route, fleet, {1, 0}).has_fed_by());
}

TEST(ChainRoute, LargerReplicasFeedSmallerOnesAndOneThatCouldNotFeedIsLast) {
  const ChainRoute route(1);
  EXPECT_TRUE(route.FeedsBefore({2, true}, {1, false}));
  EXPECT_TRUE(route.FeedsBefore({2, false}, {2, true}));
  EXPECT_FALSE(route.FeedsBefore({2, true}, {2, false}));
  EXPECT_FALSE(StarRoute().FeedsBefore({2, false}, {1, true}));
}

TEST(StreamRoute, EachRankReadsFromTheRankOfItsNumberAndJoinsNoGroup) {
  const Fleet fleet({2, 2});
  const StreamRoute route(fleet.clients[0]->endpoint());
  const Fleet reader({2});
  const BeginUpdateRequest request = Filled(route, reader, {0, 1});
  EXPECT_EQ(request.transport(), common::v1::TRANSPORT_STREAM);
  EXPECT_EQ(request.stream_address(), "127.0.0.1:1001");
  EXPECT_FALSE(request.has_rendezvous());
  EXPECT_EQ(route.SenderName(reader.clients, {0, 1}, 0), "r0/1");
}

}  // namespace
}  // namespace tandem::trainer
