// Score calls to a rollout that is busy, fails or moves.
#include "tools/tandem/driver/score_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/rpc/server.h"
#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace v1 = rollout::v1;
using OnError = ScoreClient::OnError;

// Its only logit is the first id, unless the test says otherwise.
class FakeScorer final : public v1::RolloutService::Service {
 public:
  FakeScorer() {
    auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .role = "rollout"}, {this});
    EXPECT_OK(server.status());
    server_ = *std::move(server);
  }

  grpc::Status Score(grpc::ServerContext* context, const v1::ScoreRequest* request,
                     v1::ScoreResponse* response) override {
    ++num_calls;
    const int now = ++num_running_;
    most_running = std::max<int>(most_running, now);
    response->add_class_logits(static_cast<float>(request->token_ids(0)));
    const grpc::Status status = answer ? answer(*context, *request) : grpc::Status::OK;
    --num_running_;
    return status;
  }

  const std::string& address() const { return server_->address(); }

  // Set before the first call.
  std::function<grpc::Status(grpc::ServerContext&, const v1::ScoreRequest&)> answer;
  std::atomic<int> num_calls = 0;
  std::atomic<int> most_running = 0;

 private:
  std::atomic<int> num_running_ = 0;
  std::unique_ptr<rpc::Server> server_;
};

std::vector<v1::ScoreRequest> Requests(int count) {
  std::vector<v1::ScoreRequest> out(count);
  for (int i = 0; i < count; ++i) out[i].add_token_ids(static_cast<uint32_t>(i));
  return out;
}

ScoreClient::Options OptionsFor(const FakeScorer& scorer) {
  return {.name = "the model",
          .address = [address = scorer.address()] { return address; },
          .timeout = absl::Seconds(30),
          .timeout_key = "model.timeout_s"};
}

// Waits until the call is cancelled.
grpc::Status Hang(grpc::ServerContext& context) {
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!context.IsCancelled() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  return {grpc::StatusCode::CANCELLED, "gone"};
}

TEST(ScoreClient, AnswersInTheOrderOfTheRequests) {
  FakeScorer scorer;
  ScoreClient client(OptionsFor(scorer));
  const auto responses = client.Score(Requests(200), OnError::kGoOn);
  ASSERT_EQ(responses.size(), 200u);
  for (size_t i = 0; i < responses.size(); ++i) {
    ASSERT_OK(responses[i].status());
    EXPECT_EQ(responses[i]->class_logits(0), static_cast<float>(i));
  }
  EXPECT_LE(scorer.most_running, 64);
  EXPECT_EQ(client.Score({}, OnError::kGoOn).size(), 0u);
}

TEST(ScoreClient, OthersGoOnWhereOneFails) {
  FakeScorer scorer;
  scorer.answer = [](grpc::ServerContext&, const v1::ScoreRequest& request) {
    return request.token_ids(0) == 1 ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too long")
                                     : grpc::Status::OK;
  };
  ScoreClient client(OptionsFor(scorer));
  const auto responses = client.Score(Requests(3), OnError::kGoOn);
  EXPECT_OK(responses[0].status());
  EXPECT_THAT(responses[1].status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the model"), HasSubstr("too long"))));
  EXPECT_OK(responses[2].status());
  EXPECT_EQ(scorer.num_calls, 3);
}

TEST(ScoreClient, AnErrorCancelsTheOthers) {
  FakeScorer scorer;
  scorer.answer = [](grpc::ServerContext& context, const v1::ScoreRequest& request) {
    return request.token_ids(0) == 1 ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too long")
                                     : Hang(context);
  };
  ScoreClient client(OptionsFor(scorer));
  for (const auto& response : client.Score(Requests(3), OnError::kCancelOthers)) {
    EXPECT_THAT(response.status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too long")));
  }
}

TEST(ScoreClient, AnInterruptEndsCallsUnderWay) {
  FakeScorer scorer;
  absl::Notification has_begun;
  scorer.answer = [&has_begun](grpc::ServerContext& context, const v1::ScoreRequest&) {
    if (!has_begun.HasBeenNotified()) has_begun.Notify();
    return Hang(context);
  };
  ScoreClient::Options options = OptionsFor(scorer);
  options.interrupted = [&has_begun] { return has_begun.HasBeenNotified(); };
  ScoreClient client(std::move(options));
  const auto responses = client.Score(Requests(1), OnError::kGoOn);
  EXPECT_THAT(responses[0].status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

TEST(ScoreClient, ARolloutThatStaysDownIsAnErrorWithItsReason) {
  ScoreClient client({.name = "the model",
                      .address = [] { return ""; },
                      .timeout = absl::Seconds(1),
                      .timeout_key = "model.timeout_s"});
  for (const auto& response : client.Score(Requests(2), OnError::kGoOn)) {
    EXPECT_THAT(response.status(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("the model"), HasSubstr("model.timeout_s"),
                               HasSubstr("it is down"))));
  }
}

TEST(ScoreClient, RepeatsCallsAtTheAddressThatTheRolloutHasNow) {
  FakeScorer stopping, moved;
  stopping.answer = [](grpc::ServerContext&, const v1::ScoreRequest&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stops");
  };
  ScoreClient::Options options = OptionsFor(stopping);
  options.address = [&] { return stopping.num_calls == 0 ? stopping.address() : moved.address(); };
  ScoreClient client(std::move(options));
  for (const auto& response : client.Score(Requests(3), OnError::kGoOn)) {
    EXPECT_OK(response.status());
  }
  EXPECT_EQ(moved.num_calls, 3);
}

TEST(ScoreClient, CallsOfSeveralThreadsShareTheirRoom) {
  FakeScorer scorer;
  ScoreClient client(OptionsFor(scorer));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&client] {
      for (const auto& response : client.Score(Requests(50), OnError::kGoOn)) {
        EXPECT_OK(response.status());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scorer.num_calls, 150);
  EXPECT_LE(scorer.most_running, 64);
}

}  // namespace
}  // namespace tandem::driver
