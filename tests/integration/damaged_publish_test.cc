// The driver's PublishWeights, and the trainer's answer, with flipped bits, repeated, or of an
// earlier call. The trainer is a process, the rollout holds what the trainer's manifest says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "common/weights/tensor_digests.h"
#include "services/rollout/receive/weight_service.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/fakes/rpc_proxy.h"
#include "tests/services/trainer/service/trainer_processes.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

using ::tandem::testing::TempFolder;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kFlips = 60;

// Has nothing at first.
struct Rollout {
  explicit Rollout(const common::v1::Manifest& manifest) : store(manifest), receiver(&store) {
    server = *rpc::Server::Start({.role = "rollout"}, {&service});
  }
  ~Rollout() {
    receiver.Shutdown();
    server.reset();
  }
  testing::FakeWeightStore store;
  rollout::WeightReceiver receiver;
  rollout::WeightServiceImpl service{&receiver};
  std::unique_ptr<rpc::Server> server;
};

class DamagedPublish : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(trainer_, trainer::TrainerProcesses::Start(
                                       folder_ / "trainer", trainer::TinyConfig(folder_.path())));
    stub_ = trainer::v1::TrainerService::NewStub(rpc::MakeChannel(trainer_->address()));
    ASSERT_OK(Call(&trainer::v1::TrainerService::Stub::GetModelInfo, info_));
    ASSERT_OK(Call(&trainer::v1::TrainerService::Stub::GetWeightDigests, digests_));
    proxy_ = std::make_unique<testing::RpcProxy>(trainer_->address());
    proxy_->on_request = [this](const std::string&, std::string& bytes) {
      const int times = repeats_.exchange(1);
      if (on_request_) std::exchange(on_request_, nullptr)(bytes);
      return times;
    };
    proxy_->on_response = [this](const std::string&, std::string& bytes) {
      if (on_answer_) std::exchange(on_answer_, nullptr)(bytes);
    };
    through_ =
        trainer::v1::TrainerService::NewStub(rpc::MakeChannel(proxy_->address(), {.retry = false}));
  }

  template <typename Method, typename Response>
  absl::Status Call(Method method, Response& response) {
    const auto context = rpc::MakeContext(absl::Seconds(30));
    return rpc::FromGrpcStatus(((*stub_).*method)(context.get(), {}, &response));
  }

  // To a new rollout. What it serves then, if anything, is what the trainer has.
  absl::Status Publish() {
    Rollout rollout(info_.manifest());
    trainer::v1::PublishWeightsRequest request;
    request.set_request_id(rpc::NewUuid());
    request.set_incarnation(info_.incarnation());
    request.set_policy_version(info_.policy_version());
    auto& replica = *request.add_replicas();
    replica.set_replica_id("r0");
    replica.add_rank_addresses(rollout.server->address());
    rpc::SetDigest(request);
    trainer::v1::PublishWeightsResponse response;
    const auto context = rpc::MakeContext(absl::Seconds(60));
    absl::Status status = rpc::ExplainGarbled(
        rpc::FromGrpcStatus(through_->PublishWeights(context.get(), request, &response)));
    if (status.ok()) status = rpc::CheckDigest(response, request.message_digest());
    if (status.ok()) {
      EXPECT_EQ(rollout.store.live_version(), info_.policy_version());
      // A repeat that finds the version live everywhere answers none.
      EXPECT_THAT(response.model_digest(), AnyOf("", digests_.model_digest()));
    }
    if (rollout.store.live_version() >= 0) {
      EXPECT_EQ(rollout.store.live_version(), info_.policy_version());
      for (int i = 0; i < info_.manifest().tensors_size(); ++i) {
        const auto& tensor = info_.manifest().tensors(i);
        EXPECT_EQ(weights::SumOfHeld(tensor, rollout.store.Live(i)).Hex(),
                  digests_.digests(i).digest());
      }
    }
    return status;
  }

  const TempFolder folder_;
  std::unique_ptr<trainer::TrainerProcesses> trainer_;
  std::unique_ptr<trainer::v1::TrainerService::Stub> stub_, through_;
  trainer::v1::GetModelInfoResponse info_;
  trainer::v1::GetWeightDigestsResponse digests_;
  std::unique_ptr<testing::RpcProxy> proxy_;
  std::function<void(std::string&)> on_request_, on_answer_;  // of the next call
  std::atomic<int> repeats_{1};
};

// Whether two messages say the same: any bit of a bool but none of them all makes it true.
template <typename Message>
bool SayTheSame(const std::string& a, const std::string& b) {
  Message one, other;
  return one.ParseFromString(a) && other.ParseFromString(b) &&
         one.SerializeAsString() == other.SerializeAsString();
}

template <typename Message>
auto Flip(uint64_t seed) {
  return [seed](std::string& bytes) {
    std::mt19937_64 random(seed);
    const std::string sent = bytes;
    do {
      for (uint64_t i = 0; i <= seed % 3; ++i) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << (random() % 8));
      }
    } while (SayTheSame<Message>(bytes, sent));
  };
}

TEST_F(DamagedPublish, WithFlippedBitsIsNamedAndTheNextOneSucceeds) {
  for (uint64_t seed = 0; seed < kFlips; ++seed) {
    SCOPED_TRACE(seed);
    if (seed % 2 == 0) {
      on_request_ = Flip<trainer::v1::PublishWeightsRequest>(seed);
    } else {
      on_answer_ = Flip<trainer::v1::PublishWeightsResponse>(seed);
    }
    EXPECT_THAT(std::string(Publish().message()), HasSubstr("damaged"));
    ASSERT_OK(Publish());
  }
}

TEST_F(DamagedPublish, RepeatedOrOfAnEarlierCallIsHarmlessOrNamed) {
  repeats_ = 2;
  EXPECT_OK(Publish());
  std::string request, answer;
  on_request_ = [&](std::string& bytes) { request = bytes; };
  on_answer_ = [&](std::string& bytes) { answer = bytes; };
  ASSERT_OK(Publish());
  on_request_ = [&](std::string& bytes) { bytes = request; };
  EXPECT_THAT(std::string(Publish().message()),
              AnyOf(HasSubstr("another call"), HasSubstr("replica r0")));
  ASSERT_OK(Publish());
  on_answer_ = [&](std::string& bytes) { bytes = answer; };
  EXPECT_THAT(std::string(Publish().message()), HasSubstr("another call"));
  ASSERT_OK(Publish());
}

}  // namespace
}  // namespace tandem
