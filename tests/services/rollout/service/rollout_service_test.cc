// The service over a real connection: streams, cancellation, errors, health, drain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/enum_sweep.h"
#include "tests/support/request_id_sweep.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

TEST_F(RolloutServiceTest, StreamsTheReferencesContinuation) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  std::ifstream file(testing::TestData(std::string(kStories) + "/greedy_3.jsonl"));
  std::string line;
  std::getline(file, line);
  const auto golden = nlohmann::json::parse(line);
  v1::GenerateRequest request = Request({}, golden["greedy_ids"].size());
  request.set_text(golden["prompt"].get<std::string>());
  request.set_stream(true);
  request.set_return_text(true);
  request.set_request_id("r-1");

  std::map<int32_t, Sample> samples;
  ASSERT_OK(Generate(request, samples));

  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].ids, golden["greedy_ids"].get<std::vector<uint32_t>>());
  EXPECT_EQ(samples[0].logprobs.size(), samples[0].ids.size());
  EXPECT_EQ(samples[0].finish, common::v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(samples[0].first.request_id(), "r-1");
  EXPECT_EQ(samples[0].first.num_prompt_tokens(),
            static_cast<int64_t>(golden["prompt_ids"].size()));
  EXPECT_EQ(samples[0].first.version_spans(0).policy_version(), 0);
}

TEST_F(RolloutServiceTest, AnswersEachSampleInOneMessageUnlessToldToStream) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GenerateRequest request = Request({1, 80, 147}, 12);
  request.mutable_sampling()->set_temperature(1.0);
  request.mutable_sampling()->set_n(4);
  request.mutable_sampling()->set_seed(9);
  std::map<int32_t, Sample> samples;
  ASSERT_OK(Generate(request, samples));
  ASSERT_EQ(samples.size(), 4u);
  for (auto& [index, sample] : samples) {
    EXPECT_EQ(sample.num_messages, 1);
    EXPECT_EQ(sample.ids.size(), 12u);
    EXPECT_EQ(sample.first.seed(), 9u);
  }
  EXPECT_NE(samples[0].ids, samples[1].ids);
}

TEST_F(RolloutServiceTest, ABadRequestNamesItsFieldAndHarmsNobody) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  std::map<int32_t, Sample> none;
  const auto field = [&](const v1::GenerateRequest& request) {
    const absl::Status status = Generate(request, none);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const auto detail = rpc::GetDetail<common::v1::BadField>(status);
    return detail.has_value() ? detail->field() : "";
  };
  EXPECT_EQ(field({}), "prompt");
  EXPECT_EQ(field(Request({}, 3)), "token_ids");
  EXPECT_EQ(field(Request({1, 2048}, 3)), "token_ids.ids[1]");
  EXPECT_EQ(field(Request({4294967295u}, 3)), "token_ids.ids[0]");
  v1::GenerateRequest request = Request({1}, 3);
  request.mutable_sampling()->set_temperature(-1);
  EXPECT_EQ(field(request), "sampling.temperature");
  v1::GenerateRequest long_prompt = Request({}, 3);
  for (int i = 0; i < 512; ++i) long_prompt.mutable_token_ids()->add_ids(5);
  EXPECT_EQ(field(long_prompt), "token_ids");

  std::map<int32_t, Sample> samples;
  EXPECT_OK(Generate(Request({1, 80}, 3), samples));
}

TEST_F(RolloutServiceTest, ALongRequestIdIsRefusedInEveryRequest) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  EXPECT_EQ(testing::ExpectLongRequestIdsAreRefused(channel_, kRolloutName), 2);
  EXPECT_EQ(testing::ExpectLongRequestIdsAreRefused(channel_, kWeightName), 6);

  v1::GenerateRequest request = Request({1, 80}, 3);
  request.set_request_id(std::string(rpc::kMaxRequestIdBytes, 'i'));
  std::map<int32_t, Sample> samples;
  EXPECT_OK(Generate(request, samples));
}

TEST_F(RolloutServiceTest, AnEnumThatHasNoNameIsRefusedInEveryRequest) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  EXPECT_GE(testing::ExpectUnknownEnumsAreRefused(channel_, kRolloutName), 3);
  EXPECT_EQ(testing::ExpectUnknownEnumsAreRefused(channel_, kWeightName), 1);

  v1::GenerateRequest request = Request({1, 80}, 3);
  request.add_begun()->add_token_ids(4);
  request.mutable_begun(0)->set_finish_reason(static_cast<common::v1::FinishReason>(77));
  std::map<int32_t, Sample> samples;
  EXPECT_THAT(Generate(request, samples),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("begun[0].finish_reason: expected one of")));
}

TEST_F(RolloutServiceTest, AServerInfoAnswersWhatItWasProbedWith) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GetServerInfoRequest request;
  request.set_probe(std::string(5000, 'x'));
  v1::GetServerInfoResponse info;
  const auto context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->GetServerInfo(context.get(), request, &info)));
  EXPECT_EQ(info.probe(), request.probe());
}

TEST_F(RolloutServiceTest, ACancelledCallFreesItsBlocks) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GenerateRequest request = Request({1, 80, 147}, 500);
  request.mutable_sampling()->set_n(64);
  request.set_stream(true);
  {
    const auto context = rpc::MakeContext(kTimeout);
    const auto reader = stub_->Generate(context.get(), request);
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context->TryCancel();
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  const absl::Time deadline = absl::Now() + kTimeout;
  v1::GetServerInfoResponse info = Info();
  // The call's tokens are taken off the books by its own end, soon after the scheduler's.
  while ((info.num_running_requests() > 0 || info.num_queued_tokens() > 0) &&
         absl::Now() < deadline) {
    info = Info();
  }
  EXPECT_EQ(info.num_free_kv_blocks(), info.num_kv_blocks());
  EXPECT_EQ(info.num_queued_tokens(), 0);
  EXPECT_LT(info.num_generated_tokens(), 64 * 500);
}

TEST_F(RolloutServiceTest, AnAbortReturnsWhatWasSampled) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GenerateRequest request = Request({1, 80, 147}, 500);
  request.set_request_id("long");
  request.set_stream(true);
  request.mutable_sampling()->set_n(32);
  const auto context = rpc::MakeContext(kTimeout);
  const auto reader = stub_->Generate(context.get(), request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  v1::AbortRequest abort;
  abort.add_request_ids("long");
  abort.add_request_ids("unknown");
  v1::AbortResponse aborted;
  const auto abort_context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Abort(abort_context.get(), abort, &aborted)));
  EXPECT_EQ(aborted.num_aborted(), 1);
  std::map<int32_t, common::v1::FinishReason> finish;
  do {
    finish[response.index()] = response.finish_reason();
  } while (reader->Read(&response));
  EXPECT_OK(rpc::FromGrpcStatus(reader->Finish()));
  EXPECT_EQ(finish.size(), 32u);
  for (const auto& [index, reason] : finish) EXPECT_EQ(reason, common::v1::FINISH_REASON_ABORTED);
}

TEST_F(RolloutServiceTest, ScoresWhatItGenerates) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  std::map<int32_t, Sample> samples;
  ASSERT_OK(Generate(Request({1, 80, 147, 201}, 30), samples));
  v1::ScoreRequest request;
  for (const uint32_t id : {1, 80, 147, 201}) request.add_token_ids(id);
  for (const uint32_t id : samples[0].ids) request.add_token_ids(id);
  v1::ScoreResponse response;
  const auto context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Score(context.get(), request, &response)));
  ASSERT_EQ(response.logprobs_size(), 33);
  for (int i = 0; i < 30; ++i) {
    EXPECT_NEAR(response.logprobs(3 + i), samples[0].logprobs[i], 1e-4);
  }
}

TEST_F(RolloutServiceTest, ScoresWithTheLikeliestTokens) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::ScoreRequest request;
  for (const uint32_t id : {1, 80, 147, 201}) request.add_token_ids(id);
  const int k = static_cast<int>(std::min<int64_t>(1024, Info().vocab_size()));
  request.set_num_top_logprobs(k);
  v1::ScoreResponse response;
  const auto context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Score(context.get(), request, &response)));
  ASSERT_EQ(response.top_token_ids_size(), 3 * k);
  ASSERT_EQ(response.top_logprobs_size(), 3 * k);
  for (int position = 0; position < 3; ++position) {
    double mass = 0;
    for (int i = 0; i < k; ++i) {
      const float logprob = response.top_logprobs(position * k + i);
      mass += std::exp(static_cast<double>(logprob));
      if (i > 0) EXPECT_LE(logprob, response.top_logprobs(position * k + i - 1));
      // The given token has one log-prob.
      if (response.top_token_ids(position * k + i) == request.token_ids(position + 1)) {
        EXPECT_EQ(logprob, response.logprobs(position));
      }
    }
    EXPECT_LT(mass, 1.0001);
    EXPECT_GT(mass, 0.9);
  }
}

TEST_F(RolloutServiceTest, IsStaleUntilACommit) {
  SKIP_WITHOUT_DATA(kStories);
  Start(/*commit_folder=*/false);
  EXPECT_EQ(Info().state(), v1::ROLLOUT_STATE_STALE);
  EXPECT_EQ(Info().policy_version(), -1);
  std::map<int32_t, Sample> none;
  const absl::Status status = Generate(Request({1}, 3), none);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("STALE")));
  EXPECT_THAT(rpc::IsServing(channel_, kRolloutName, kTimeout), testing::IsOkAndHolds(false));
  EXPECT_THAT(rpc::IsServing(channel_, kWeightName, kTimeout), testing::IsOkAndHolds(true));
}

TEST_F(RolloutServiceTest, SaysWhatItIs) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const v1::GetServerInfoResponse info = Info();
  EXPECT_EQ(info.state(), v1::ROLLOUT_STATE_SERVING);
  EXPECT_EQ(info.policy_version(), 0);
  EXPECT_EQ(info.updating_to_version(), -1);
  EXPECT_EQ(info.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(info.vocab_size(), 2048);
  EXPECT_EQ(info.max_model_len(), 512);
  EXPECT_EQ(info.dtype(), "float32");
  EXPECT_TRUE(info.has_tokenizer());
  EXPECT_THAT(info.eos_token_ids(), ::testing::ElementsAre(2));
  EXPECT_THAT(rpc::IsServing(channel_, kRolloutName, kTimeout), testing::IsOkAndHolds(true));
}

TEST_F(RolloutServiceTest, APauseHoldsRequestsUntilTheResume) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::PauseResponse paused;
  const auto pause_context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->Pause(pause_context.get(), {}, &paused)));
  EXPECT_EQ(Info().state(), v1::ROLLOUT_STATE_PAUSED);
  std::map<int32_t, Sample> samples;
  absl::Status status;
  std::thread client([&] { status = Generate(Request({1, 80}, 5), samples); });
  const absl::Time deadline = absl::Now() + kTimeout;
  while (Info().num_waiting_requests() == 0 && absl::Now() < deadline) {
  }
  EXPECT_EQ(Info().num_generated_tokens(), 0);
  v1::ResumeResponse resumed;
  const auto resume_context = rpc::MakeContext(kTimeout);
  EXPECT_OK(rpc::FromGrpcStatus(stub_->Resume(resume_context.get(), {}, &resumed)));
  client.join();
  EXPECT_OK(status);
  EXPECT_EQ(samples[0].ids.size(), 5u);
}

TEST_F(RolloutServiceTest, ADrainHandsBackWhatDoesNotEndInTime) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  v1::GenerateRequest request = Request({1, 80}, 500);
  request.mutable_sampling()->set_n(256);
  request.set_stream(true);
  const auto context = rpc::MakeContext(kTimeout);
  const auto reader = stub_->Generate(context.get(), request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  std::thread drain([&] { process_->Drain(absl::Milliseconds(500)); });
  std::map<int32_t, common::v1::FinishReason> finish;
  do {
    finish[response.index()] = response.finish_reason();
  } while (reader->Read(&response));
  reader->Finish();
  drain.join();
  EXPECT_FALSE(finish.empty());
  std::map<int32_t, Sample> none;
  EXPECT_FALSE(Generate(Request({1}, 3), none).ok());
}

}  // namespace
}  // namespace tandem::rollout
