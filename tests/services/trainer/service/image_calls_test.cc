// The service with one rank and small models that see images (tests/common/model/vision_golden):
// log-probs and steps with images, and images that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/images/image_digest.h"
#include "common/io/read_file.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "services/trainer/service/trainer_service.h"
#include "tests/services/trainer/service/one_rank.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vision_golden.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kPlaceholder = 36;

std::string Source() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return source == nullptr ? "." : source;
}

std::string ModelFolder() { return testing::VisionGolden("qwen2-5-vl"); }

config::v1::RunConfig Config(double vision_lr) {
  const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  config::v1::RunConfig config = TinyConfig(MakeFolder(name));
  const json golden =
      io::ReadJsonFile(Source() + "/tests/services/trainer/fsdp/vision_training.json").value();
  config.mutable_model()->set_path(ModelFolder());
  config.mutable_model()->set_random_init(false);
  config.mutable_actor()->set_vision_lr(vision_lr);
  config::v1::OptimConfig& optim = *config.mutable_actor()->mutable_optim();
  optim.set_lr(golden["lr"]);
  optim.clear_betas();
  optim.add_betas(golden["beta1"]);
  optim.add_betas(golden["beta2"]);
  optim.set_weight_decay(golden["weight_decay"]);
  optim.set_grad_clip(golden["grad_clip"]);
  return config;
}

class ImageCalls : public ::testing::Test {
 protected:
  void Start(double vision_lr = 0) {
    trainer_ = std::make_unique<OneRank>(Config(vision_lr));
    client_ = std::make_unique<TrainerClient>(trainer_->server().address());
    rows_ = io::ReadJsonFile(ModelFolder() + "/golden.json").value()["rows"];
  }

  static std::string File(const std::string& name) {
    return io::ReadFile(ModelFolder() + "/" + name).value();
  }

  static v1::TrainStepRequest Header(int64_t step = 1) {
    v1::TrainStepRequest request;
    request.mutable_header()->set_step(step);
    request.mutable_header()->set_objective(v1::OBJECTIVE_SUPERVISED);
    return request;
  }

  static v1::TrainStepRequest Image(const std::string& data) {
    v1::TrainStepRequest request;
    request.mutable_image()->set_data(data);
    return request;
  }

  // A sample that shows the row's images in its prompt, and trains on all that follows: on its first
  // token, too, if no image is in the prompt.
  static common::v1::Sample Sample(const json& row) {
    const std::vector<uint32_t> ids = row["ids"];
    size_t prompt = 1;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == kPlaceholder) prompt = i + 1;
    }
    common::v1::Sample sample;
    common::v1::Segment& given = *sample.add_segments();
    given.set_kind(common::v1::SEGMENT_KIND_PROMPT);
    given.mutable_token_ids()->Add(ids.begin(), ids.begin() + static_cast<int64_t>(prompt));
    for (const std::string name : row["images"]) {
      given.add_image_digests(images::ImageDigest(File(name)));
    }
    common::v1::Segment& sampled = *sample.add_segments();
    sampled.set_kind(common::v1::SEGMENT_KIND_SAMPLED);
    sampled.mutable_token_ids()->Add(ids.begin() + static_cast<int64_t>(prompt), ids.end());
    return sample;
  }

  static v1::TrainStepRequest Message(const common::v1::Sample& sample) {
    v1::TrainStepRequest request;
    *request.mutable_sample() = sample;
    return request;
  }

  absl::StatusOr<v1::TrainStepResponse> Send(const std::vector<v1::TrainStepRequest>& messages) {
    auto context = rpc::MakeContext(absl::Seconds(60));
    v1::TrainStepResponse response;
    auto writer = client_->stub().TrainStep(context.get(), &response);
    bool open = true;
    for (const v1::TrainStepRequest& message : messages) open = open && writer->Write(message);
    writer->WritesDone();
    const absl::Status status = rpc::FromGrpcStatus(writer->Finish());
    if (!status.ok()) return status;
    return response;
  }

  absl::StatusOr<v1::ComputeLogProbsResponse> Score(const v1::ComputeLogProbsRequest& request) {
    auto context = rpc::MakeContext(absl::Seconds(60));
    v1::ComputeLogProbsResponse response;
    const absl::Status status =
        rpc::FromGrpcStatus(client_->stub().ComputeLogProbs(context.get(), request, &response));
    if (!status.ok()) return status;
    return response;
  }

  static v1::ComputeLogProbsRequest::Sequence Sequence(const json& row) {
    v1::ComputeLogProbsRequest::Sequence sequence;
    const std::vector<uint32_t> ids = row["ids"];
    sequence.mutable_token_ids()->Add(ids.begin(), ids.end());
    for (const std::string name : row["images"]) sequence.add_images()->set_data(File(name));
    return sequence;
  }

  std::unique_ptr<OneRank> trainer_;
  std::unique_ptr<TrainerClient> client_;
  json rows_;
};

TEST_F(ImageCalls, LogProbsAreThoseOfTransformers) {
  Start();
  v1::ComputeLogProbsRequest request;
  for (const json& row : rows_) *request.add_sequences() = Sequence(row);
  ASSERT_OK_AND_ASSIGN(const auto response, Score(request));
  ASSERT_EQ(response.sequences_size(), static_cast<int>(rows_.size()));
  for (int r = 0; r < response.sequences_size(); ++r) {
    const std::vector<double> expected = rows_[r]["logprobs"];
    ASSERT_EQ(response.sequences(r).logprobs_size(), static_cast<int>(expected.size()));
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_NEAR(response.sequences(r).logprobs(static_cast<int>(t)), expected[t], 1e-4)
          << r << " " << t;
    }
  }
}

TEST_F(ImageCalls, AStepLowersTheLossOfCompletionsAfterPictures) {
  for (const double vision_lr : {0.0, 1e-3}) {
    Start(vision_lr);
    double last = 100;
    for (int64_t step = 1; step <= 4; ++step) {
      std::vector<v1::TrainStepRequest> messages = {Header(step)};
      // Each file once, before the first sample that shows it.
      messages.push_back(Image(File("a.png")));
      messages.push_back(Message(Sample(rows_[0])));
      messages.push_back(Image(File("b.png")));
      messages.push_back(Message(Sample(rows_[1])));
      messages.push_back(Message(Sample(rows_[1])));
      ASSERT_OK_AND_ASSIGN(const auto response, Send(messages));
      const double loss = response.metrics().at("train/loss");
      EXPECT_LT(loss, last) << step;
      last = loss;
    }
    EXPECT_LT(last, 4.4);
  }
}

TEST_F(ImageCalls, TellsTheRolloutsThatTheTowerIsFrozen) {
  for (const double vision_lr : {0.0, 1e-3}) {
    Start(vision_lr);
    ASSERT_OK_AND_ASSIGN(const auto info, client_->GetModelInfo());
    int num_vision = 0;
    for (const common::v1::TensorEntry& tensor : info.manifest().tensors()) {
      if (tensor.name().rfind("visual.", 0) != 0) continue;
      ++num_vision;
      EXPECT_EQ(tensor.trainable(), vision_lr > 0) << tensor.name();
    }
    EXPECT_GT(num_vision, 0);
  }
}

TEST_F(ImageCalls, NamesImagesAndSamplesThatDoNotFit) {
  Start();
  const v1::TrainStepRequest a = Image(File("a.png"));
  const v1::TrainStepRequest b = Image(File("b.png"));
  const common::v1::Sample sample = Sample(rows_[0]);
  const auto changed = [&sample](const std::function<void(common::v1::Sample&)>& change) {
    common::v1::Sample out = sample;
    change(out);
    return Message(out);
  };
  const std::string digest = images::ImageDigest(File("a.png"));

  struct Case {
    std::vector<v1::TrainStepRequest> messages;
    std::string field;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{a}, "header", "before the first image"},
      {{Header(), Image("no picture")}, "images[0]", "PNG"},
      {{Header(), Image(File("a.png").substr(0, 300))}, "images[0]", ""},
      {{Header(), a, a}, "images[1]", "the file of images[0]"},
      {{Header(), Message(sample)}, "samples[0].segments[0].image_digests[0]", "of the 0 images"},
      {{Header(), b, Message(sample)},
       "samples[0].segments[0].image_digests[0]",
       "of the 1 images"},
      {{Header(), a, changed([](auto& s) { s.mutable_segments(0)->clear_image_digests(); })},
       "samples[0].segments[0].token_ids",
       "no image is left"},
      {{Header(), a, changed([&](auto& s) { s.mutable_segments(0)->add_image_digests(digest); })},
       "samples[0].segments[0].token_ids",
       "images[1]: no placeholder"},
      {{Header(), a,
        changed([](auto& s) { s.mutable_segments(0)->mutable_token_ids()->RemoveLast(); })},
       "samples[0].segments[0].token_ids",
       "placeholders"},
      {{Header(), a, changed([&](auto& s) { s.mutable_segments(1)->add_image_digests(digest); })},
       "samples[0].segments[1].image_digests",
       "expected none"},
      {{Header(), a,
        changed([](auto& s) { s.mutable_segments(0)->set_image_digests(0, "short"); })},
       "samples[0].segments[0].image_digests[0]",
       "32 bytes"},
      {{Header(), a, b, Message(sample)}, "images[1]", "no sample names its digest"},
  };
  for (const Case& bad : cases) {
    EXPECT_THAT(Send(bad.messages), StatusIs(absl::StatusCode::kInvalidArgument,
                                             AllOf(HasSubstr(bad.field), HasSubstr(bad.says))));
  }
  // Nothing was trained on.
  ASSERT_OK(Send({Header(), a, Message(sample)}));
}

TEST_F(ImageCalls, ASampledPlaceholderIsText) {
  Start();
  common::v1::Sample sample = Sample(rows_[0]);
  sample.mutable_segments(1)->set_token_ids(0, kPlaceholder);
  ASSERT_OK(Send({Header(), Image(File("a.png")), Message(sample)}));
}

TEST_F(ImageCalls, NamesTheSequenceWhoseImagesDoNotFit) {
  Start();
  v1::ComputeLogProbsRequest request;
  *request.add_sequences() = Sequence(rows_[0]);
  *request.add_sequences() = Sequence(rows_[1]);
  request.mutable_sequences(1)->mutable_images()->RemoveLast();
  EXPECT_THAT(Score(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sequences[1].token_ids")));
  request.mutable_sequences(1)->add_images()->set_data("no picture");
  EXPECT_THAT(Score(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("sequences[1].images[1]: the file")));
}

TEST(ImageCallsOfText, AreRefused) {
  OneRank trainer(TinyConfig(MakeFolder("text")));
  TrainerClient client(trainer.server().address());
  auto context = rpc::MakeContext(absl::Seconds(60));
  v1::ComputeLogProbsRequest request;
  request.add_sequences()->add_token_ids(1);
  request.mutable_sequences(0)->add_images()->set_data("a");
  v1::ComputeLogProbsResponse response;
  EXPECT_THAT(rpc::FromGrpcStatus(client.stub().ComputeLogProbs(context.get(), request, &response)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sequences[0].images[0]: expected none")));
}

}  // namespace
}  // namespace tandem::trainer
