// What an update's report says of its links: every byte of the plan, from whom and to whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "services/trainer/publish/weight_publisher.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::Endpoint;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::TestModel;

constexpr int kRanks = 3;
constexpr int64_t kBucketBytes = 64;

// Bytes by sender, and by receiver.
struct Sums {
  std::map<std::string, int64_t> from, to;
  std::set<std::string> transports;
};

Sums Add(const PublishReport& report) {
  Sums sums;
  for (const v1::UpdateLink& link : report.links) {
    sums.from[link.from()] += link.size_bytes();
    sums.to[link.to()] += link.size_bytes();
    sums.transports.insert(link.transport());
    EXPECT_GT(link.seconds(), 0) << link.from() << " to " << link.to();
    EXPECT_LT(link.seconds(), report.seconds) << link.from() << " to " << link.to();
  }
  return sums;
}

struct Case {
  std::string transport;
  std::string backend;
  std::string expected;
};

class UpdateLinksTest : public ::testing::TestWithParam<Case> {};

TEST_P(UpdateLinksTest, AddUpToThePlanOfEachSender) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(model, {.ranks = kRanks,
                                                   .bucket_bytes = kBucketBytes,
                                                   .backend = GetParam().backend,
                                                   .transport = GetParam().transport}));
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}));
  // The plan, made anew.
  ASSERT_OK_AND_ASSIGN(
      const ReshardLayout layout,
      MakeReshardLayout(weights::TrainerHoldings(model.Layout(1), {.dp_shard = kRanks}),
                        model.Layout(1), model.manifest(), kBucketBytes));
  const Sums sums = Add(report);
  int64_t total = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(sums.from.at("trainer/" + std::to_string(rank)), layout.plan.sent_bytes[rank]);
    total += layout.plan.sent_bytes[rank];
  }
  EXPECT_EQ(total, report.sent_bytes);
  // The first replica passes on all that it got.
  EXPECT_EQ(sums.to.at("one/0"), total);
  EXPECT_EQ(sums.from.at("one/0"), total);
  EXPECT_EQ(sums.to.at("two/0"), total);
  EXPECT_EQ(sums.transports, std::set<std::string>{GetParam().expected});

  if (GetParam().transport != "delta") return;
  // The second update is a delta: what the senders say that they sent is what arrived.
  TestModel changed = model;
  changed.offset = 1;
  trainer->SetWeights(changed);
  ASSERT_OK_AND_ASSIGN(const PublishReport delta,
                       trainer->Publish(2, {Endpoint("one", one), Endpoint("two", two)}));
  ASSERT_TRUE(delta.changed_share.has_value());
  EXPECT_EQ(Add(delta).to.at("one/0"), delta.sent_bytes);
}

INSTANTIATE_TEST_SUITE_P(Transports, UpdateLinksTest,
                         ::testing::Values(Case{"reshard", "messages", "shared_memory"},
                                           Case{"reshard", "local_socket", "local_socket"},
                                           Case{"reshard", "socket", "socket"},
                                           Case{"reshard", "gloo", "gloo"},
                                           Case{"delta", "socket", "socket"}),
                         [](const auto& info) {
                           return info.param.transport + "_" + info.param.backend;
                         });

TEST(UpdateLinks, OfABroadcastEachReplicaGetsAllFromTheLeader) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.ranks = 2, .backend = "gloo"}));
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}));
  const Sums sums = Add(report);
  EXPECT_EQ(sums.to.at("one/0"), trainer->plan.total_bytes);
  EXPECT_EQ(sums.to.at("two/0"), trainer->plan.total_bytes);
  EXPECT_EQ(sums.from.size(), 1u);
  EXPECT_EQ(sums.from.count("trainer/0"), 1u);
}

TEST(UpdateLinks, AReplicaThatReadsFromAnotherHasAStream) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(
      auto trainer,
      FakeTrainer::Create(model, {.ranks = 2, .backend = "socket", .transport = "reshard"}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}));
  ASSERT_EQ(report.links.size(), 1u);
  EXPECT_EQ(report.links[0].from(), "one/0");
  EXPECT_EQ(report.links[0].to(), "two/0");
  EXPECT_EQ(report.links[0].transport(), "stream");
  EXPECT_EQ(report.links[0].size_bytes(), trainer->plan.total_bytes);
}

}  // namespace
}  // namespace tandem::trainer
