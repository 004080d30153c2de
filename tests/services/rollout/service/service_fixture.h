// The service in this process, over a real connection.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_SERVICE_SERVICE_FIXTURE_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_SERVICE_SERVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/config/load.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "services/rollout/service/rollout_process.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {

inline constexpr absl::Duration kTimeout = absl::Seconds(60);
inline constexpr char kStories[] = "models/tinystories-656k";
inline constexpr char kRolloutName[] = "tandem.rollout.v1.RolloutService";
inline constexpr char kWeightName[] = "tandem.rollout.v1.WeightService";

class RolloutServiceTest : public ::testing::Test {
 protected:
  void Start(bool commit_folder = true,
             const std::function<void(config::v1::RolloutConfig&)>& change = nullptr) {
    RolloutProcessOptions options;
    options.config = config::DefaultRunConfig();
    options.config.mutable_model()->set_path(path_.empty() ? testing::TestData(model_) : path_);
    options.config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_FLOAT32);
    options.config.mutable_rollout()->set_kv_cache_megabytes(16);
    options.config.mutable_rollout()->set_threads(2);
    if (change) change(*options.config.mutable_rollout());
    options.openai = openai_;
    options.commit_folder = commit_folder;
    ASSERT_OK_AND_ASSIGN(process_, RolloutProcess::Start(options));
    channel_ = rpc::MakeChannel(process_->address());
    stub_ = v1::RolloutService::NewStub(channel_);
  }

  struct Sample {
    std::vector<uint32_t> ids;
    std::vector<float> logprobs;
    std::string text;
    common::v1::FinishReason finish = common::v1::FINISH_REASON_UNSPECIFIED;
    int num_messages = 0;
    v1::GenerateResponse first;
  };

  // Reads a stream to its end.
  absl::Status Generate(const v1::GenerateRequest& request, std::map<int32_t, Sample>& samples) {
    const auto context = rpc::MakeContext(kTimeout);
    const auto reader = stub_->Generate(context.get(), request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      Sample& sample = samples[response.index()];
      if (sample.num_messages++ == 0) sample.first = response;
      sample.ids.insert(sample.ids.end(), response.token_ids().begin(), response.token_ids().end());
      sample.logprobs.insert(sample.logprobs.end(), response.logprobs().begin(),
                             response.logprobs().end());
      sample.text += response.text();
      sample.finish = response.finish_reason();
    }
    return rpc::FromGrpcStatus(reader->Finish());
  }

  v1::GetServerInfoResponse Info() {
    v1::GetServerInfoResponse info;
    const auto context = rpc::MakeContext(kTimeout);
    EXPECT_OK(rpc::FromGrpcStatus(stub_->GetServerInfo(context.get(), {}, &info)));
    return info;
  }

  static v1::GenerateRequest Request(std::initializer_list<uint32_t> ids, int64_t max_tokens) {
    v1::GenerateRequest request;
    request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    request.mutable_sampling()->set_max_tokens(max_tokens);
    request.mutable_sampling()->set_temperature(0.0);
    request.mutable_sampling()->set_ignore_eos(true);
    return request;
  }

  std::string model_ = kStories;
  std::string path_;  // of a folder of the test's own, instead of the model
  openai::OpenAiOptions openai_;
  std::unique_ptr<RolloutProcess> process_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::RolloutService::Stub> stub_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_SERVICE_SERVICE_FIXTURE_H_
