#include "tests/services/trainer/service/trainer_test_support.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/load.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(60);

template <typename Response, typename Call>
absl::StatusOr<Response> Unary(Call call) {
  auto context = rpc::MakeContext(kCallTimeout);
  Response response;
  RETURN_IF_ERROR(rpc::FromGrpcStatus(call(context.get(), &response)));
  return response;
}

}  // namespace

std::string MakeFolder(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

void WriteTinyModel(const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
    "vocab_size": )" << kVocabSize << R"(, "hidden_size": 20, "intermediate_size": 36,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 10,
    "max_position_embeddings": )" << kMaxLength
                                         << R"(, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "initializer_range": 0.08, "tie_word_embeddings": false, "eos_token_id": 0, "torch_dtype": "float32"
  })";
}

config::v1::RunConfig TinyConfig(const std::string& folder) {
  WriteTinyModel(folder + "/base");
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_model()->set_path(folder + "/base");
  config.mutable_model()->set_random_init(true);
  config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_FLOAT32);
  config.mutable_actor()->mutable_optim()->set_lr(1e-2);
  config.mutable_trainer()->set_threads(1);
  config.mutable_trainer()->set_collective_timeout_s(30);
  config.set_seed(11);
  config.set_run_dir(folder + "/run");
  return config;
}

std::vector<common::v1::Sample> RandomSamples(int groups, int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  std::vector<common::v1::Sample> out;
  for (int g = 0; g < groups; ++g) {
    const int64_t prompt_length = 1 + below(8);
    std::vector<uint32_t> prompt;
    for (int64_t i = 0; i < prompt_length; ++i) prompt.push_back(below(kVocabSize));
    for (int i = 0; i < n; ++i) {
      common::v1::Sample& sample = out.emplace_back();
      sample.set_sample_id(absl::StrCat(seed, "-", g, "-", i));
      sample.set_group_id(absl::StrCat("g", g));
      sample.set_index(i);
      common::v1::Segment& given = *sample.add_segments();
      given.set_kind(common::v1::SEGMENT_KIND_PROMPT);
      given.mutable_token_ids()->Add(prompt.begin(), prompt.end());
      common::v1::Segment& sampled = *sample.add_segments();
      sampled.set_kind(common::v1::SEGMENT_KIND_SAMPLED);
      for (int64_t t = 1 + below(20); t > 0; --t) sampled.add_token_ids(below(kVocabSize));
      sample.set_reward(static_cast<double>(below(5)) / 4);
      sample.set_temperature(1.0);
      sample.set_finish_reason(common::v1::FINISH_REASON_STOP);
    }
  }
  return out;
}

TrainerClient::TrainerClient(const std::string& address)
    : stub_(v1::TrainerService::NewStub(rpc::MakeChannel(address, {.retry = false}))) {}

absl::StatusOr<v1::GetModelInfoResponse> TrainerClient::GetModelInfo() {
  return Unary<v1::GetModelInfoResponse>([&](grpc::ClientContext* context, auto* response) {
    return stub_->GetModelInfo(context, {}, response);
  });
}

absl::StatusOr<v1::TrainStepResponse> TrainerClient::TrainStep(
    int64_t step, v1::Objective objective, const std::vector<common::v1::Sample>& samples) {
  v1::TrainStepHeader header;
  header.set_step(step);
  header.set_objective(objective);
  header.set_num_samples(static_cast<int64_t>(samples.size()));
  header.set_driver_state(absl::StrCat("state after ", step));
  return TrainStep(header, samples);
}

absl::StatusOr<v1::TrainStepResponse> TrainerClient::TrainStep(
    const v1::TrainStepHeader& header, const std::vector<common::v1::Sample>& samples) {
  return Unary<v1::TrainStepResponse>([&](grpc::ClientContext* context, auto* response) {
    auto writer = stub_->TrainStep(context, response);
    v1::TrainStepRequest request;
    *request.mutable_header() = header;
    bool open = writer->Write(request);
    for (const common::v1::Sample& sample : samples) {
      *request.mutable_sample() = sample;
      open = open && writer->Write(request);
    }
    writer->WritesDone();
    return writer->Finish();
  });
}

absl::StatusOr<std::vector<float>> TrainerClient::LogProbs(
    const std::vector<common::v1::Sample>& samples) {
  v1::ComputeLogProbsRequest request;
  for (const common::v1::Sample& sample : samples) {
    v1::ComputeLogProbsRequest::Sequence& sequence = *request.add_sequences();
    for (const common::v1::Segment& segment : sample.segments()) {
      sequence.mutable_token_ids()->MergeFrom(segment.token_ids());
    }
  }
  ASSIGN_OR_RETURN(
      const auto response,
      Unary<v1::ComputeLogProbsResponse>([&](grpc::ClientContext* context, auto* response) {
        return stub_->ComputeLogProbs(context, request, response);
      }));
  std::vector<float> out;
  for (const auto& sequence : response.sequences()) {
    out.insert(out.end(), sequence.logprobs().begin(), sequence.logprobs().end());
  }
  return out;
}

absl::StatusOr<v1::SaveCheckpointResponse> TrainerClient::Save(const std::string& path,
                                                               v1::CheckpointFormat format) {
  v1::SaveCheckpointRequest request;
  request.set_path(path);
  request.set_format(format);
  return Save(request);
}

absl::StatusOr<v1::SaveCheckpointResponse> TrainerClient::Save(
    const v1::SaveCheckpointRequest& request) {
  return Unary<v1::SaveCheckpointResponse>([&](grpc::ClientContext* context, auto* response) {
    return stub_->SaveCheckpoint(context, request, response);
  });
}

absl::StatusOr<v1::LoadCheckpointResponse> TrainerClient::Load(const std::string& path,
                                                               int64_t min_policy_version) {
  v1::LoadCheckpointRequest request;
  request.set_path(path);
  request.set_min_policy_version(min_policy_version);
  return Load(request);
}

absl::StatusOr<v1::LoadCheckpointResponse> TrainerClient::Load(
    const v1::LoadCheckpointRequest& request) {
  return Unary<v1::LoadCheckpointResponse>([&](grpc::ClientContext* context, auto* response) {
    return stub_->LoadCheckpoint(context, request, response);
  });
}

}  // namespace tandem::trainer
