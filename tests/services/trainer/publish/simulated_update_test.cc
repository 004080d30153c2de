// Whole weight updates over simulated devices (tests/simulator): the trainer's shards lie on one,
// each rollout's staged and live weights on another, and the bytes travel through NcclGroup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/nccl_api.h"
#include "tests/fakes/device_weight_store.h"
#include "tests/fakes/forgetful_device.h"
#include "tests/fakes/weight_pair.h"
#include "tests/simulator/accelerator.h"
#include "tests/simulator/nccl.h"
#include "tests/simulator/weight_ops.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::FakeTrainer;
using ::tandem::testing::ForgetfulDevice;
using ::tandem::testing::SimulatedAccelerator;
using ::tandem::testing::SimulatedNccl;
using ::tandem::testing::SimulatedWeightOps;
using ::tandem::testing::TestModel;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::shared_ptr<device::Device> DeviceOf(int index) {
  return device::Device::Create(SimulatedAccelerator::Get().device(index)).value();
}

// As a GPU of its own.
common::v1::UpdatePlace PlaceOf(c10::Device device) {
  common::v1::UpdatePlace place;
  place.set_gpu(device.str());
  place.set_host("here");
  return place;
}

std::set<std::string> TransportsOf(const PublishReport& report) {
  std::set<std::string> transports;
  for (const auto& link : report.links) transports.insert(link.transport());
  return transports;
}

// Its receiver's thread works on the store's device from the moment that it makes room there.
class SimulatedStore : public testing::DeviceWeightStore {
 public:
  SimulatedStore(common::v1::Manifest manifest, weights::DeviceOps& ops,
                 std::shared_ptr<device::Device> device)
      : DeviceWeightStore(std::move(manifest), ops), device_(std::move(device)) {}
  absl::Status PrepareStaging() override {
    device_->MakeCurrent();
    return DeviceWeightStore::PrepareStaging();
  }
  common::v1::UpdatePlace place() const override { return PlaceOf(device_->device()); }

 private:
  const std::shared_ptr<device::Device> device_;
};

class SimulatedRollout {
 public:
  SimulatedRollout(int device, const TestModel& model, int rank = 0, int num_ranks = 1)
      : device_(DeviceOf(device)),
        rank_(rank),
        num_ranks_(num_ranks),
        store_(model.PartManifest(rank, num_ranks), ops_, device_) {
    rpc::ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.role = "rollout";
    server_ = rpc::Server::Start(options, {&service_}).value();
  }
  ~SimulatedRollout() { receiver_.Shutdown(); }

  ReplicaEndpoint endpoint() const { return {device_->device().str(), {server_->address()}}; }
  const std::string& address() const { return server_->address(); }
  SimulatedWeightOps& ops() { return ops_; }

  // The live weights are the model, byte for byte.
  void ExpectLive(const TestModel& model, int64_t version) {
    EXPECT_EQ(store_.live_version(), version);
    for (int i = 0; i < store_.manifest().tensors_size(); ++i) {
      const absl::Span<const std::byte> live = store_.Live(i);
      std::string bytes(live.size(), '\0');
      ASSERT_OK(weights::ReadBytes(ops_, live.data(),
                                   {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}));
      EXPECT_EQ(bytes, model.PartBytes(i, rank_, num_ranks_))
          << store_.manifest().tensors(i).name();
    }
  }

 private:
  const std::shared_ptr<device::Device> device_;
  const int rank_, num_ranks_;
  SimulatedWeightOps ops_{device_};
  SimulatedStore store_;
  rollout::WeightReceiver receiver_{&store_};
  rollout::WeightServiceImpl service_{&receiver_};
  std::unique_ptr<rpc::Server> server_;
};

struct Case {
  std::string transport;
  std::string dtype;
};

class SimulatedUpdate : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    SimulatedAccelerator::Get().Restart({.seed = 4});
    comm::UseCollectives([] {
      return std::make_shared<SimulatedNccl>(DeviceOf(SimulatedAccelerator::current_device()));
    });
  }
  void TearDown() override { comm::UseCollectives(nullptr); }

  // One rank, on the device of `ops`.
  static absl::StatusOr<std::unique_ptr<FakeTrainer>> MakeTrainer(
      const TestModel& model, SimulatedWeightOps& ops,
      const std::string& backend = FakeTrainer::Options().backend) {
    return FakeTrainer::Create(model, {.ranks = 1,
                                       .bucket_bytes = 104,
                                       .backend = backend,
                                       .senders = {PlaceOf(ops.device())},
                                       .transport = GetParam().transport,
                                       .device = &ops});
  }

  // Gives the trainer the model's weights of this version, which its device still computes when the
  // update begins, and publishes them.
  static absl::StatusOr<PublishReport> PublishVersion(
      FakeTrainer& trainer, TestModel& model, int64_t version,
      const std::vector<ReplicaEndpoint>& replicas) {
    model.offset = version;
    trainer.SetWeights(model);
    for (size_t u = 0; u < model.units.size(); ++u) trainer.master(0, u).mul_(2).div_(2);
    return trainer.Publish(version, replicas, absl::Seconds(60));
  }

  // The trainer is on device 0, the rollouts are on 1 and 2.
  absl::Status Publish(std::shared_ptr<device::Device> trainer_device) {
    TestModel model = TestModel::Small(GetParam().dtype);
    SimulatedRollout one(1, model), two(2, model);
    SimulatedWeightOps ops(std::move(trainer_device));
    ASSIGN_OR_RETURN(auto trainer, MakeTrainer(model, ops));
    for (int version = 1; version <= 3; ++version) {
      ASSIGN_OR_RETURN(const PublishReport report,
                       PublishVersion(*trainer, model, version, {one.endpoint(), two.endpoint()}));
      for (const auto& replica : report.replicas) EXPECT_TRUE(replica.committed) << replica.error;
      EXPECT_THAT(TransportsOf(report), ElementsAre("nccl"));
      one.ExpectLive(model, version);
      two.ExpectLive(model, version);
    }
    EXPECT_GE(ops.num_digests, 3);
    EXPECT_GE(one.ops().num_digests, 3);
    return absl::OkStatus();
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, SimulatedUpdate,
                         ::testing::Values(Case{"broadcast", "float32"},
                                           Case{"broadcast", "bfloat16"},
                                           Case{"reshard", "float32"}, Case{"reshard", "bfloat16"},
                                           Case{"delta", "float32"}, Case{"delta", "bfloat16"}),
                         [](const auto& info) {
                           return info.param.transport + "_" + info.param.dtype;
                         });

TEST_P(SimulatedUpdate, BringsTheTrainersBytesInOrder) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    SimulatedAccelerator::Get().Restart({.seed = seed});
    EXPECT_OK(Publish(DeviceOf(0)));
    EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty());
  }
}

// Streams run their messages one by one: an order that differs between ranks would never end.
TEST_P(SimulatedUpdate, BringsReplicasOfTwoRanksTheirParts) {
  TestModel model = TestModel::Small(GetParam().dtype);
  model.columns = {0, 2};
  std::vector<std::unique_ptr<SimulatedRollout>> ranks;
  std::vector<ReplicaEndpoint> replicas;
  for (const char* const replica : {"one", "two"}) {
    replicas.push_back({replica, {}});
    for (int rank = 0; rank < 2; ++rank) {
      const auto device = static_cast<int>(ranks.size()) + 1;
      ranks.push_back(std::make_unique<SimulatedRollout>(device, model, rank, 2));
      replicas.back().rank_addresses.push_back(ranks.back()->address());
    }
  }
  SimulatedWeightOps ops(DeviceOf(0));
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer(model, ops));
  for (int version = 1; version <= 3; ++version) {
    ASSERT_OK_AND_ASSIGN(const PublishReport report,
                         PublishVersion(*trainer, model, version, replicas));
    EXPECT_THAT(TransportsOf(report), ElementsAre("nccl"));
    for (const auto& rank : ranks) rank->ExpectLive(model, version);
  }
  EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty());
}

// One rollout keeps its weights in host memory: the others' bytes then travel there too.
TEST_P(SimulatedUpdate, ReachesAFleetOfDevicesAndHosts) {
  TestModel model = TestModel::Small(GetParam().dtype);
  SimulatedRollout one(1, model);
  testing::FakeRollout two(model);
  SimulatedWeightOps ops(DeviceOf(0));
  const bool gathers = GetParam().transport == "broadcast";
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer(model, ops, gathers ? "gloo" : "messages"));
  const std::vector<ReplicaEndpoint> mixed = {one.endpoint(), {"two", {two.address()}}};
  // The fourth goes to the device alone.
  for (int version = 1; version <= 4; ++version) {
    ASSERT_OK_AND_ASSIGN(const PublishReport report,
                         PublishVersion(*trainer, model, version,
                                        version < 4 ? mixed : std::vector{one.endpoint()}));
    for (const auto& replica : report.replicas) EXPECT_TRUE(replica.committed) << replica.error;
    EXPECT_THAT(TransportsOf(report), ElementsAre(version == 4 ? "nccl"
                                                  : gathers    ? "gloo"
                                                               : "shared_memory"));
    one.ExpectLive(model, version);
  }
  EXPECT_EQ(two.store.live_version(), 3);
  EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty());
}

TEST_P(SimulatedUpdate, ThatDoesNotWaitForTheWeightsIsFound) {
  // The bytes may be those of any moment; then the digests differ and nothing is committed.
  Publish(std::make_shared<ForgetfulDevice>(DeviceOf(0), [](absl::string_view what) {
    return what == weights::kWorkBeforeOps;
  })).IgnoreError();
  EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(),
              Contains(::testing::AllOf(HasSubstr("is not ordered after"), HasSubstr("div"))));
}

}  // namespace
}  // namespace tandem::trainer
