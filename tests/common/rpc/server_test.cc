#include "common/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/telemetry/log.h"
#include "tandem/common/v1/error.pb.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);
constexpr char kName[] = "tandem.reward.v1.RewardService";

// Answers when it is told to.
class HeldService final : public reward::v1::RewardService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ComputeRewards(grpc::CallbackServerContext* context,
                                           const reward::v1::ComputeRewardsRequest*,
                                           reward::v1::ComputeRewardsResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (fail_.load()) {
      reactor->Finish(ToGrpcStatus(InvalidField("samples", "expected one, found none")));
      return reactor;
    }
    entered_.Notify();
    answering_ = std::thread([this, reactor] {
      may_answer_.WaitForNotificationWithTimeout(kTimeout);
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }
  ~HeldService() override {
    if (answering_.joinable()) answering_.join();
  }

  std::atomic<bool> fail_{false};
  absl::Notification entered_;
  absl::Notification may_answer_;
  std::thread answering_;
};

std::unique_ptr<Server> StartServer(const std::vector<grpc::Service*>& services = {},
                                    std::function<void()> on_drain = nullptr) {
  auto server = Server::Start({.listen = "127.0.0.1:0",
                               .role = "reward",
                               .health_names = {kName},
                               .on_drain = std::move(on_drain)},
                              services);
  EXPECT_OK(server.status());
  return std::move(server).value();
}

absl::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                  absl::Duration timeout = kTimeout) {
  const auto stub = reward::v1::RewardService::NewStub(channel);
  reward::v1::ComputeRewardsResponse response;
  const auto context = MakeContext(timeout);
  return FromGrpcStatus(stub->ComputeRewards(context.get(), {}, &response));
}

TEST(Server, AnswersHealthForTheProcessAndEachName) {
  const auto server = StartServer();
  const auto channel = MakeChannel(server->address());
  EXPECT_THAT(IsServing(channel, "", kTimeout), IsOkAndHolds(true));
  EXPECT_THAT(IsServing(channel, kName, kTimeout), IsOkAndHolds(false));
  server->SetServing(kName, true);
  EXPECT_THAT(IsServing(channel, kName, kTimeout), IsOkAndHolds(true));
  EXPECT_OK(WaitUntilHealthy(channel, kName, kTimeout));
  EXPECT_THAT(IsServing(channel, "nobody", kTimeout),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
  EXPECT_GE(server->num_finished_calls(), 4);
}

TEST(Server, TheHealthPortAnswersHealthAndNoServiceOfOurs) {
  HeldService reward;
  reward.fail_ = true;
  auto server = Server::Start({.listen = "127.0.0.1:0",
                               .health_listen = "127.0.0.1:0",
                               .role = "reward",
                               .health_names = {kName}},
                              {&reward});
  ASSERT_OK(server.status());
  const auto probe = MakeChannel((*server)->health_address());
  EXPECT_THAT(IsServing(probe, "", kTimeout), IsOkAndHolds(true));
  EXPECT_THAT(IsServing(probe, kName, kTimeout), IsOkAndHolds(false));
  (*server)->SetServing(kName, true);
  EXPECT_THAT(IsServing(probe, kName, kTimeout), IsOkAndHolds(true));
  EXPECT_THAT(Call(probe), StatusIs(absl::StatusCode::kUnimplemented, ::testing::_));
  EXPECT_THAT(Call(MakeChannel((*server)->address())),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

TEST(Server, AHealthPortInUseIsAnError) {
  const auto first = StartServer();
  EXPECT_THAT(
      Server::Start({.listen = "127.0.0.1:0", .health_listen = first->address(), .role = "reward"},
                    {})
          .status(),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("health port"), HasSubstr(first->address()))));
}

TEST(Server, WaitingForHealthEndsWithTheServiceOrTheDeadline) {
  const auto server = StartServer();
  const auto channel = MakeChannel(server->address());
  EXPECT_THAT(WaitUntilHealthy(channel, kName, absl::Milliseconds(500)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(kName), HasSubstr("last response: NOT_SERVING"))));
  std::thread later([&] { server->SetServing(kName, true); });
  EXPECT_OK(WaitUntilHealthy(channel, kName, kTimeout));
  later.join();
}

TEST(Server, WaitingForNobodyEndsAtTheDeadline) {
  int port;
  { port = StartServer()->port(); }
  EXPECT_THAT(WaitUntilHealthy(MakeChannel("127.0.0.1:" + std::to_string(port)), "",
                               absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("last response: ")));
}

TEST(Server, ASecondServerOnThePortIsRefused) {
  const auto first = StartServer();
  EXPECT_THAT(Server::Start({.listen = first->address(), .role = "rollout"}, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("the rollout cannot listen on " + first->address()),
                             HasSubstr("Address already in use"))));
}

TEST(Server, AnAddressThatIsNoneIsRefused) {
  for (const char* listen : {"", "5000", "host", ":1", "127.0.0.1:x", "127.0.0.1:70000"}) {
    EXPECT_THAT(Server::Start({.listen = listen}, {}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected HOST:PORT")));
  }
}

TEST(Server, OffersReflection) {
  HeldService service;
  const auto server = StartServer({&service});
  // ServerReflectionRequest{list_services: ""}, by hand: field 7 is a string.
  grpc::GenericStub stub(MakeChannel(server->address()));
  const auto context = MakeContext(kTimeout);
  const grpc::Slice request(std::string("\x3a\x00", 2));
  grpc::ByteBuffer message(&request, 1), answer;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      context.get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag;
  bool ok;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->WriteLast(message, grpc::WriteOptions(), nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->Read(&answer, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  std::string bytes;
  for (const auto& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  EXPECT_THAT(bytes, HasSubstr(kName));
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST(Server, ErrorDetailsReachTheClient) {
  HeldService service;
  service.fail_ = true;
  const auto server = StartServer({&service});
  const absl::Status status = Call(MakeChannel(server->address()));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument, "samples: expected one, found none"));
  const auto field = GetDetail<common::v1::BadField>(status);
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(field->field(), "samples");
}

TEST(Server, ACallHasADeadline) {
  HeldService service;
  const auto server = StartServer({&service});
  EXPECT_THAT(Call(MakeChannel(server->address()), absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
  service.may_answer_.Notify();
}

TEST(Server, DrainTurnsHealthAndLetsCallsFinish) {
  HeldService service;
  absl::Notification draining;
  const auto server = StartServer({&service}, [&draining] { draining.Notify(); });
  server->SetServing(kName, true);
  absl::Status answered = absl::UnknownError("no answer");
  std::thread caller([&] { answered = Call(MakeChannel(server->address())); });
  ASSERT_TRUE(service.entered_.WaitForNotificationWithTimeout(kTimeout));
  std::thread drain([&] { server->Drain(kTimeout); });
  ASSERT_TRUE(draining.WaitForNotificationWithTimeout(kTimeout));
  server->SetServing(kName, true);  // too late to have an effect
  service.may_answer_.Notify();
  caller.join();
  drain.join();
  EXPECT_OK(answered);
  EXPECT_THAT(
      IsServing(MakeChannel(server->address(), {.retry = false}), kName, absl::Seconds(2)).status(),
      StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  server->Drain(kTimeout);  // harmless
}

TEST(Server, DrainCancelsWhatOutlastsTheGrace) {
  HeldService service;
  const auto server = StartServer({&service});
  absl::Status answered;
  const auto channel = MakeChannel(server->address(), {.retry = false});
  std::thread caller([&] { answered = Call(channel); });
  ASSERT_TRUE(service.entered_.WaitForNotificationWithTimeout(kTimeout));
  std::thread drain([&] { server->Drain(absl::Milliseconds(20)); });
  caller.join();
  EXPECT_FALSE(answered.ok());
  service.may_answer_.Notify();  // a callback service still finishes what it began
  drain.join();
}

TEST(Server, CallsAreLoggedAtDebugLevel) {
  static std::vector<std::string>* lines = new std::vector<std::string>;
  static absl::Mutex mu;
  HeldService service;
  service.fail_ = true;
  auto server = StartServer({&service});
  telemetry::SetLogLevel(telemetry::LogLevel::kDebug);
  telemetry::SetLogSink([](absl::string_view line) {
    absl::MutexLock lock(&mu);
    lines->emplace_back(line);
  });
  (void)Call(MakeChannel(server->address()));
  server.reset();
  telemetry::SetLogSink(nullptr);
  telemetry::SetLogLevel(telemetry::LogLevel::kInfo);
  absl::MutexLock lock(&mu);
  EXPECT_THAT(*lines, ::testing::Contains(
                          AllOf(HasSubstr("method=/tandem.reward.v1.RewardService/ComputeRewards"),
                                HasSubstr("code=INVALID_ARGUMENT"), HasSubstr("seconds="))));
}

}  // namespace
}  // namespace tandem::rpc
