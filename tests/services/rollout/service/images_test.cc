// Images over a real connection: what transformers computes of them (tests/parity/vision_golden.py), and
// what a client may send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/read_file.h"
#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/vision_golden.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ServiceImagesTest : public RolloutServiceTest,
                          public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    path_ = testing::VisionGolden(GetParam());
    Start();
    golden_ = nlohmann::json::parse(io::ReadFile(path_ + "/golden.json").value());
  }

  v1::ScoreRequest ScoreOf(const nlohmann::json& row) const {
    v1::ScoreRequest request;
    for (const uint32_t id : row["ids"]) request.add_token_ids(id);
    for (const std::string name : row["images"]) {
      request.add_images()->set_data(io::ReadFile(path_ + "/" + name).value());
    }
    return request;
  }

  absl::Status Score(const v1::ScoreRequest& request, v1::ScoreResponse* response) {
    const auto context = rpc::MakeContext(kTimeout);
    return rpc::FromGrpcStatus(stub_->Score(context.get(), request, response));
  }

  nlohmann::json golden_;
};

TEST_P(ServiceImagesTest, LogProbsAreThoseOfTransformers) {
  for (const nlohmann::json& row : golden_["rows"]) {
    v1::ScoreResponse response;
    ASSERT_OK(Score(ScoreOf(row), &response));
    ASSERT_EQ(static_cast<size_t>(response.logprobs_size()), row["logprobs"].size());
    for (int i = 0; i < response.logprobs_size(); ++i) {
      EXPECT_NEAR(response.logprobs(i), row["logprobs"][i].get<double>(), 1e-4) << i;
    }
  }
}

TEST_P(ServiceImagesTest, GeneratesWhatItScores) {
  const nlohmann::json& row = golden_["rows"][1];  // two images between texts
  v1::ScoreRequest scored = ScoreOf(row);
  v1::GenerateRequest request = Request({}, 8);
  *request.mutable_token_ids()->mutable_ids() = scored.token_ids();
  *request.mutable_images() = scored.images();
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(11);
  request.mutable_sampling()->set_n(3);
  std::map<int32_t, Sample> samples;
  ASSERT_OK(Generate(request, samples));
  ASSERT_EQ(samples.size(), 3U);
  for (const auto& [index, sample] : samples) {
    v1::ScoreRequest whole = scored;
    whole.mutable_token_ids()->Add(sample.ids.begin(), sample.ids.end());
    v1::ScoreResponse response;
    ASSERT_OK(Score(whole, &response));
    const int first = scored.token_ids_size() - 1;
    ASSERT_EQ(response.logprobs_size(), first + 8);
    for (int i = 0; i < 8; ++i) {
      EXPECT_NEAR(sample.logprobs[static_cast<size_t>(i)], response.logprobs(first + i), 1e-5);
    }
  }
}

TEST_P(ServiceImagesTest, BadInputIsNamedAndHarmsNobody) {
  const nlohmann::json& row = golden_["rows"][1];
  v1::ScoreResponse response;
  v1::ScoreRequest cut = ScoreOf(row);
  cut.mutable_images(1)->mutable_data()->resize(100);
  EXPECT_THAT(Score(cut, &response), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr("images[1]"), HasSubstr("PNG"))));
  v1::ScoreRequest swapped = ScoreOf(row);
  swapped.mutable_images()->SwapElements(0, 1);
  // Where both images have as many rows, or tiles of as many, nobody can tell.
  const std::vector<std::string> differ = testing::AnySizeGoldenCases();
  if (std::find(differ.begin(), differ.end(), GetParam()) != differ.end()) {
    EXPECT_THAT(Score(swapped, &response),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("images["), HasSubstr("placeholders"))));
  }
  v1::ScoreRequest none = ScoreOf(row);
  none.clear_images();
  EXPECT_THAT(Score(none, &response),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images: token ")));
  v1::GenerateRequest text = Request({}, 4);
  text.set_text("what is this?");
  *text.mutable_images() = cut.images();
  std::map<int32_t, Sample> samples;
  EXPECT_THAT(Generate(text, samples),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images: a text")));

  EXPECT_OK(Score(ScoreOf(row), &response));
}

INSTANTIATE_TEST_SUITE_P(Cases, ServiceImagesTest,
                         ::testing::ValuesIn(testing::VisionGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

}  // namespace
}  // namespace tandem::rollout
