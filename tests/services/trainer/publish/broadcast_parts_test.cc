// Broadcasts to replicas whose ranks hold parts of tensors and whole experts: every rank receives
// the bytes that it holds and no others, whatever the other replicas are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/trainer/publish/weight_publisher.h"
#include "tests/fakes/simulated_device.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::SimulatedDevice;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A norm that all have, matrices that are split by columns, and eight experts.
TestModel Model(std::string dtype = "float32") {
  TestModel model;
  model.units = {{{7}}, {{3, 8}, {5, 12}}, {}, {{11, 3}}};
  for (int expert = 0; expert < 8; ++expert) model.units[2].push_back({4 + expert, 6});
  model.columns = {1};
  model.experts = {2};
  model.dtype = std::move(dtype);
  return model;
}

class Replica {
 public:
  Replica(std::string id, const TestModel& model, int num_ranks) {
    endpoint.id = std::move(id);
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks.push_back(std::make_unique<FakeRollout>(model.PartManifest(rank, num_ranks)));
      endpoint.rank_addresses.push_back(ranks.back()->address());
    }
  }
  int size() const { return static_cast<int>(ranks.size()); }

  void ExpectLive(const TestModel& model, int64_t version) const {
    for (int rank = 0; rank < size(); ++rank) {
      const auto& store = ranks[rank]->store;
      EXPECT_EQ(store.live_version(), version) << endpoint.id << "/" << rank;
      for (int i = 0; version >= 0 && i < store.manifest().tensors_size(); ++i) {
        EXPECT_EQ(store.LiveBytes(i), model.PartBytes(i, rank, size()))
            << endpoint.id << "/" << rank << ": " << store.manifest().tensors(i).name();
      }
    }
  }
  int64_t HeldBytes(const TestModel& model, int rank) const {
    int64_t bytes = 0;
    for (int i = 0; i < model.manifest().tensors_size(); ++i) {
      bytes += std::ssize(model.PartBytes(i, rank, size()));
    }
    return bytes;
  }

  ReplicaEndpoint endpoint;
  std::vector<std::unique_ptr<FakeRollout>> ranks;
};

std::vector<std::unique_ptr<Replica>> MakeFleet(const TestModel& model,
                                                const std::vector<int>& sizes) {
  std::vector<std::unique_ptr<Replica>> fleet;
  for (const int size : sizes) {
    fleet.push_back(std::make_unique<Replica>(absl::StrCat("r", fleet.size()), model, size));
  }
  return fleet;
}

std::vector<ReplicaEndpoint> EndpointsOf(const std::vector<std::unique_ptr<Replica>>& fleet) {
  std::vector<ReplicaEndpoint> endpoints;
  for (const auto& replica : fleet) endpoints.push_back(replica->endpoint);
  return endpoints;
}

struct Bytes {
  std::map<std::string, int64_t> to;                        // by receiver
  std::map<std::string, std::set<std::string>> neighbours;  // of a receiver, its senders
};

Bytes BytesOf(const PublishReport& report) {
  Bytes bytes;
  for (const v1::UpdateLink& link : report.links) {
    bytes.to[link.to()] += link.size_bytes();
    bytes.neighbours[link.to()].insert(link.from());
  }
  return bytes;
}

struct Case {
  std::string name;
  std::vector<int> sizes;
  std::string backend = "shared_memory";
  std::string dtype = "float32";
  int64_t bucket_bytes = 256;
  bool on_device = false;
};

class BroadcastParts : public ::testing::TestWithParam<Case> {};

TEST_P(BroadcastParts, EachRankReceivesTheBytesThatItHolds) {
  const Case& c = GetParam();
  TestModel model = Model(c.dtype);
  const auto fleet = MakeFleet(model, c.sizes);
  SimulatedDevice device;
  weights::DeviceOps& ops = c.on_device ? device : weights::CpuOps();
  for (const auto& replica : fleet) {
    for (const auto& rank : replica->ranks) rank->store.device = &ops;
  }
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.ranks = 2,
                                                                 .bucket_bytes = c.bucket_bytes,
                                                                 .backend = c.backend,
                                                                 .device = &ops}));
  for (int version = 1; version <= 3; ++version) {
    model.offset = version;
    trainer->SetWeights(model);
    ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(version, EndpointsOf(fleet)));
    const Bytes bytes = BytesOf(report);
    for (const auto& replica : fleet) {
      replica->ExpectLive(model, version);
      for (int rank = 0; rank < replica->size(); ++rank) {
        EXPECT_EQ(bytes.to.at(absl::StrCat(replica->endpoint.id, "/", rank)),
                  replica->HeldBytes(model, rank))
            << replica->endpoint.id << "/" << rank;
      }
    }
    // What all ranks hold leaves once, the rest once for each size.
    int64_t for_all = 0;
    for (const int tensor : {0, 11}) for_all += std::ssize(model.Bytes(tensor));
    const std::set<int> sizes(c.sizes.begin(), c.sizes.end());
    EXPECT_EQ(report.sent_bytes,
              for_all + static_cast<int64_t>(sizes.size()) * (trainer->plan.total_bytes - for_all));
    EXPECT_EQ(report.size_bytes, trainer->plan.total_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fleets, BroadcastParts,
    ::testing::Values(Case{"OneOfTwo", {2}}, Case{"TwoOfTwo", {2, 2}},
                      Case{"ThreeOfTwoGloo", {2, 2, 2}, "gloo", "bfloat16", 104},
                      Case{"Mixed", {4, 2, 1}}, Case{"MixedGloo", {1, 2, 4, 2, 1}, "gloo"},
                      Case{"OneOfFourInOneBucket", {4}, "gloo", "bfloat16", 1 << 20},
                      Case{"TwoOfTwoOnDevice", {2, 2}, "gloo", "bfloat16", 104, true},
                      Case{"TwoOfTwoInTinyBuckets", {2, 2}, "shared_memory", "float32", 8}),
    [](const auto& info) { return info.param.name; });

TEST(BroadcastPartsOf, PassFromReplicaToReplica) {
  const TestModel model = Model();
  const auto fleet = MakeFleet(model, {2, 1, 2});
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.ranks = 1}));
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(1, EndpointsOf(fleet)));
  Bytes bytes = BytesOf(report);
  EXPECT_EQ(bytes.neighbours["r0/1"], std::set<std::string>{"trainer/0"});
  EXPECT_EQ(bytes.neighbours["r1/0"], std::set<std::string>{"trainer/0"});
  EXPECT_EQ(bytes.neighbours["r2/1"], (std::set<std::string>{"trainer/0", "r0/1"}));
}

TEST(BroadcastPartsOf, AFleetThatChangesFollowIt) {
  TestModel model = Model();
  const auto all = MakeFleet(model, {2, 2, 1, 4});
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.ranks = 2}));
  int version = 0;
  for (const std::vector<int>& members :
       {std::vector<int>{0}, {0, 1}, {1, 2}, {0, 1, 2, 3}, {3, 0}, {2}, {0, 1}}) {
    model.offset = ++version;
    trainer->SetWeights(model);
    std::vector<ReplicaEndpoint> endpoints;
    for (const int member : members) endpoints.push_back(all[member]->endpoint);
    ASSERT_OK(trainer->Publish(version, endpoints).status());
    for (const int member : members) all[member]->ExpectLive(model, version);
  }
}

TEST(BroadcastPartsOf, FrozenTensorsAreSentOnce) {
  TestModel model = Model();
  model.frozen = {0, 2};
  const auto fleet = MakeFleet(model, {2, 1});
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.ranks = 2}));
  ASSERT_OK(trainer->Publish(1, EndpointsOf(fleet)).status());
  model.offset = 2;
  trainer->SetWeights(model);
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(2, EndpointsOf(fleet)));
  int64_t trained = 0;
  for (const int tensor : {1, 2, 11}) trained += std::ssize(model.Bytes(tensor));
  EXPECT_EQ(BytesOf(report).to.at("r1/0"), trained);
  for (const auto& replica : fleet) replica->ExpectLive(model, 2);
}

// Flips one bit of what the leader sends to one rank alone.
TEST(BroadcastPartsOf, DamageOfAPartIsFoundAndNothingIsCommitted) {
  TestModel model = Model();
  const auto fleet = MakeFleet(model, {2, 2});
  auto damages = std::make_shared<std::atomic<bool>>(false);
  ASSERT_OK_AND_ASSIGN(
      auto trainer,
      FakeTrainer::Create(
          model, {.ranks = 1,
                  .backend = "gloo",
                  .meddle_update = [damages](absl::string_view tag, const at::Tensor& bytes) {
                    if (!absl::StrContains(tag, "bucket 2 of") || !damages->exchange(false)) {
                      return std::vector<at::Tensor>{bytes};
                    }
                    at::Tensor damaged = bytes.clone();
                    damaged[0].bitwise_xor_(1);
                    return std::vector<at::Tensor>{damaged};
                  }}));
  ASSERT_OK(trainer->Publish(1, EndpointsOf(fleet)).status());
  const TestModel before = model;
  model.offset = 5;
  trainer->SetWeights(model);
  *damages = true;
  EXPECT_THAT(
      trainer->Publish(2, EndpointsOf(fleet)).status(),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("replica r0"), HasSubstr("was sent"))));
  EXPECT_FALSE(*damages);
  for (const auto& replica : fleet) replica->ExpectLive(before, 1);
  ASSERT_OK(trainer->Publish(2, EndpointsOf(fleet)).status());
  for (const auto& replica : fleet) replica->ExpectLive(model, 2);
}

// A rank that feeds another one has no more memory while the bytes arrive.
TEST(BroadcastPartsOf, AFailureInTheMiddleLeavesTheOldVersionAndTheNextUpdateWorks) {
  for (const char* const backend : {"gloo", "shared_memory"}) {
    SCOPED_TRACE(backend);
    TestModel model = Model();
    const auto fleet = MakeFleet(model, {2, 2, 1});
    ASSERT_OK_AND_ASSIGN(
        auto trainer,
        FakeTrainer::Create(model, {.ranks = 2, .bucket_bytes = 64, .backend = backend}));
    ASSERT_OK(trainer->Publish(1, EndpointsOf(fleet)).status());
    const TestModel before = model;
    model.offset = 5;
    trainer->SetWeights(model);
    auto& failing = fleet[0]->ranks[1]->store;
    failing.on_finished = [&](int tensor) {
      if (tensor == 6) failing.arrive_error = absl::InternalError("no more memory");
    };
    EXPECT_THAT(trainer->Publish(2, EndpointsOf(fleet)).status(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("phase wire, bucket "), HasSubstr("phase transfer"))));
    for (const auto& replica : fleet) replica->ExpectLive(before, 1);
    ASSERT_OK(trainer->Barrier());
    failing.on_finished = nullptr;
    failing.arrive_error = absl::OkStatus();
    ASSERT_OK(trainer->Publish(2, EndpointsOf(fleet)).status());
    for (const auto& replica : fleet) replica->ExpectLive(model, 2);
  }
}

TEST(BroadcastPartsOf, AReplicaThatFailsLeavesTheOthersTheUpdate) {
  for (const char* const backend : {"gloo", "shared_memory"}) {
    SCOPED_TRACE(backend);
    TestModel model = Model();
    const auto fleet = MakeFleet(model, {2, 2, 2});
    ASSERT_OK_AND_ASSIGN(auto trainer,
                         FakeTrainer::Create(model, {.ranks = 2,
                                                     .bucket_bytes = 64,
                                                     .policy = UpdatePolicy::kAvailable,
                                                     .backend = backend}));
    auto& failing = fleet[1]->ranks[0]->store;
    failing.on_finished = [&](int tensor) {
      if (tensor == 2) failing.arrive_error = absl::InternalError("no more memory");
    };
    ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(1, EndpointsOf(fleet)));
    EXPECT_FALSE(report.replicas[1].committed);
    for (const int replica : {0, 2}) fleet[replica]->ExpectLive(model, 1);
  }
}

}  // namespace
}  // namespace tandem::trainer
