// Clients that ask for what cannot be, or do not read: each gets its status, and others their
// tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "tests/services/rollout/service/service_fixture.h"

namespace tandem::rollout {
namespace {

using ::testing::HasSubstr;

class HostileClientTest : public RolloutServiceTest {
 protected:
  std::string FieldAtFault(const v1::GenerateRequest& request) {
    std::map<int32_t, Sample> none;
    const absl::Status status = Generate(request, none);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(none.empty());
    const auto detail = rpc::GetDetail<common::v1::BadField>(status);
    return detail.has_value() ? detail->field() : "";
  }

  ::testing::AssertionResult EndsIdle() {
    const absl::Time deadline = absl::Now() + kTimeout;
    v1::GetServerInfoResponse info = Info();
    while (absl::Now() < deadline &&
           (info.num_free_kv_blocks() != info.num_kv_blocks() || info.num_queued_tokens() != 0)) {
      absl::SleepFor(absl::Milliseconds(5));
      info = Info();
    }
    if (info.num_free_kv_blocks() != info.num_kv_blocks() || info.num_queued_tokens() != 0) {
      return ::testing::AssertionFailure() << info.ShortDebugString();
    }
    return ::testing::AssertionSuccess();
  }
};

TEST_F(HostileClientTest, EveryFieldOutOfRangeIsNamedWhileOthersGoOn) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const struct {
    std::string field;
    std::function<void(v1::GenerateRequest&)> spoil;
  } cases[] = {
      {"sampling.temperature", [](auto& r) { r.mutable_sampling()->set_temperature(-1); }},
      {"sampling.temperature", [](auto& r) { r.mutable_sampling()->set_temperature(NAN); }},
      {"sampling.top_k", [](auto& r) { r.mutable_sampling()->set_top_k(-3); }},
      {"sampling.top_p", [](auto& r) { r.mutable_sampling()->set_top_p(0); }},
      {"sampling.top_p", [](auto& r) { r.mutable_sampling()->set_top_p(1.5); }},
      {"sampling.min_p", [](auto& r) { r.mutable_sampling()->set_min_p(-0.1); }},
      {"sampling.min_p", [](auto& r) { r.mutable_sampling()->set_min_p(2); }},
      {"sampling.n", [](auto& r) { r.mutable_sampling()->set_n(0); }},
      {"sampling.n", [](auto& r) { r.mutable_sampling()->set_n(1 << 30); }},
      {"sampling.max_tokens", [](auto& r) { r.mutable_sampling()->set_max_tokens(0); }},
      {"sampling.max_tokens", [](auto& r) { r.mutable_sampling()->set_max_tokens(-5); }},
      {"sampling.min_tokens", [](auto& r) { r.mutable_sampling()->set_min_tokens(-1); }},
      {"sampling.min_tokens",
       [](auto& r) {
         r.mutable_sampling()->set_min_tokens(9);
         r.mutable_sampling()->set_max_tokens(8);
       }},
      // More than the context leaves: no end could ever count.
      {"sampling.min_tokens",
       [](auto& r) {
         r.mutable_sampling()->clear_max_tokens();
         r.mutable_sampling()->set_min_tokens(511);
       }},
      {"sampling.stop_token_ids[0]",
       [](auto& r) { r.mutable_sampling()->add_stop_token_ids(2048); }},
      {"sampling.stop_token_ids[1]",
       [](auto& r) {
         r.mutable_sampling()->add_stop_token_ids(1);
         r.mutable_sampling()->add_stop_token_ids(std::numeric_limits<uint32_t>::max());
       }},
      {"sampling.stop[0]", [](auto& r) { r.mutable_sampling()->add_stop(""); }},
      {"sampling.stop[0]", [](auto& r) { r.mutable_sampling()->add_stop(std::string(5000, 'x')); }},
      {"sampling.stop",
       [](auto& r) {
         for (int i = 0; i < 100; ++i) r.mutable_sampling()->add_stop("x" + std::to_string(i));
       }},
      {"token_ids.ids[2]", [](auto& r) { r.mutable_token_ids()->add_ids(2048); }},
      {"client_id", [](auto& r) { r.set_client_id(std::string(129, 'c')); }},
      {"request_id", [](auto& r) { r.set_request_id(std::string(129, 'i')); }},
      {"begun[0].index", [](auto& r) { r.add_begun()->set_index(7); }},
      {"begun[0].token_ids[0]", [](auto& r) { r.add_begun()->add_token_ids(2048); }},
      {"begun.finish_reason",
       [](auto& r) { r.add_begun()->set_finish_reason(common::v1::FINISH_REASON_ABORTED); }},
      {"begun.finish_reason",
       [](auto& r) { r.add_begun()->set_finish_reason(common::v1::FINISH_REASON_MAX_TURNS); }},
  };
  v1::GenerateRequest good = Request({1, 80}, 300);
  good.mutable_sampling()->set_n(4);
  std::map<int32_t, Sample> alone;
  ASSERT_OK(Generate(good, alone));

  std::map<int32_t, Sample> beside;
  absl::Status status;
  std::thread client([&] { status = Generate(good, beside); });
  for (const auto& c : cases) {
    v1::GenerateRequest request = Request({1, 80}, 3);
    c.spoil(request);
    EXPECT_EQ(FieldAtFault(request), c.field);
  }
  client.join();

  EXPECT_OK(status);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(beside[i].ids, alone[i].ids);
  EXPECT_TRUE(EndsIdle());
}

TEST_F(HostileClientTest, WhatTheCacheCanNeverHoldIsRefusedAtOnce) {
  SKIP_WITHOUT_DATA(kStories);
  Start(true, [](config::v1::RolloutConfig& rollout) { rollout.set_kv_cache_megabytes(1); });
  const int64_t longest = Info().max_model_len();
  EXPECT_EQ(longest, std::min<int64_t>(512, Info().num_kv_blocks() * 16));
  v1::GenerateRequest request = Request({}, 3);
  for (int64_t i = 0; i < longest; ++i) request.mutable_token_ids()->add_ids(5);
  std::map<int32_t, Sample> samples;
  const absl::Status status = Generate(request, samples);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(longest)));
  // As long as may be, of more samples than fit together: they take turns.
  request.mutable_token_ids()->mutable_ids()->Truncate(static_cast<int>(longest - 40));
  request.mutable_sampling()->clear_max_tokens();
  request.mutable_sampling()->set_n(6);
  ASSERT_OK(Generate(request, samples));
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(samples[i].ids.size(), 40u);
  EXPECT_TRUE(EndsIdle());
}

TEST_F(HostileClientTest, LongTextsHoldUpNobodyAndThoseThatCannotFitAreNotTokenized) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GenerateRequest request = Request({}, 3);
  std::map<int32_t, Sample> samples;
  request.set_text(std::string(3000000, 'a'));
  const absl::Status refused = Generate(request, samples);
  EXPECT_EQ(FieldAtFault(request), "text");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("bytes"));

  // Tokenized outside gRPC's threads, in turn.
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([this] {
      v1::GenerateRequest longer = Request({}, 3);
      std::string text;
      for (int w = 0; w < 20000; ++w) text += "once upon ";
      longer.set_text(text);
      EXPECT_EQ(FieldAtFault(longer), "token_ids");
    });
  }
  std::map<int32_t, Sample> other;
  EXPECT_OK(Generate(Request({1, 80}, 3), other));
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(EndsIdle());
}

TEST_F(HostileClientTest, WhoDoesNotReadHoldsUpNobody) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GenerateRequest request = Request({1, 80}, 500);
  request.mutable_sampling()->set_n(64);
  request.set_stream(true);
  request.set_return_text(true);
  constexpr int kSilent = 8;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < kSilent; ++i) {
    contexts.push_back(rpc::MakeContext(kTimeout));
    readers.push_back(stub_->Generate(contexts.back().get(), request));
  }
  // Those that read are served meanwhile.
  for (int i = 0; i < 3; ++i) {
    std::map<int32_t, Sample> samples;
    ASSERT_OK(Generate(Request({1, 80, 147}, 20), samples));
    EXPECT_EQ(samples[0].ids.size(), 20u);
  }
  // Whoever goes without having read a word leaves nothing behind.
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) {
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(EndsIdle());
}

TEST_F(HostileClientTest, ADeadlineEndsWhatWaitsInAPausedRollout) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::PauseRequest pause;
  pause.add_release(v1::RELEASED_MEMORY_KV);
  v1::PauseResponse paused;
  const auto pause_context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Pause(pause_context.get(), pause, &paused)));
  const auto context = rpc::MakeContext(absl::Milliseconds(200));
  const auto reader = stub_->Generate(context.get(), Request({1, 80}, 5));
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(EndsIdle());
}

TEST_F(HostileClientTest, SleepsAndWakesWithTheWeightsOfItsFolder) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  std::map<int32_t, Sample> before;
  ASSERT_OK(Generate(Request({1, 80}, 20), before));
  v1::PauseRequest pause;
  pause.add_release(v1::RELEASED_MEMORY_KV);
  pause.add_release(v1::RELEASED_MEMORY_WEIGHTS);
  v1::PauseResponse paused;
  const auto pause_context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Pause(pause_context.get(), pause, &paused)));
  EXPECT_EQ(Info().released_size(), 2);
  EXPECT_EQ(Info().policy_version(), -1);
  EXPECT_THAT(rpc::IsServing(channel_, kRolloutName, kTimeout), testing::IsOkAndHolds(false));
  std::map<int32_t, Sample> none;
  EXPECT_EQ(Generate(Request({1, 80}, 20), none).code(), absl::StatusCode::kFailedPrecondition);

  v1::ResumeResponse resumed;
  const auto resume_context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Resume(resume_context.get(), {}, &resumed)));
  EXPECT_EQ(Info().state(), v1::ROLLOUT_STATE_SERVING);
  EXPECT_EQ(Info().released_size(), 0);
  EXPECT_THAT(rpc::IsServing(channel_, kRolloutName, kTimeout), testing::IsOkAndHolds(true));
  std::map<int32_t, Sample> after;
  ASSERT_OK(Generate(Request({1, 80}, 20), after));
  EXPECT_EQ(after[0].ids, before[0].ids);
}

}  // namespace
}  // namespace tandem::rollout
