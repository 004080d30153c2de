// Images in episodes: those of the prompt, and those that an environment or an agent brings along.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/images/image_digest.h"
#include "tests/support/picture_data.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/multi_turn_episode.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/recorded_episode.h"
#include "tools/tandem/driver/recorded_samples.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/driver/sample_lines.h"

namespace tandem::driver {
namespace {

using environment::Reply;
using nlohmann::ordered_json;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::SquaresPng;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<uint32_t>;

// Answers as the test says.
class Scripted : public environment::Environment {
 public:
  explicit Scripted(std::deque<Reply>& replies) : replies_(replies) {}
  std::optional<absl::StatusOr<Reply>> Step(const environment::SampledTurn& /*turn*/,
                                            Done /*done*/) override {
    Reply reply = std::move(replies_.front());
    replies_.pop_front();
    return reply;
  }

 private:
  std::deque<Reply>& replies_;
};

ImageFile File(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// A message of the environment with an image before its text.
Reply Shows(const std::string& picture, const std::string& text) {
  Reply out;
  const ordered_json parts =
      ordered_json::array({{{"type", "image"}}, {{"type", "text"}, {"text", text}}});
  out.messages = ordered_json::array({{{"role", "user"}, {"content", parts}}});
  out.images = {File(picture)};
  return out;
}

class ImageEpisodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = testing::WritePictureModel(folder_);
    ASSERT_OK_AND_ASSIGN(tokenizer_, LoadTokenizerIfAny(model_));
    ASSERT_OK_AND_ASSIGN(reader_, ImageReader::Create(model_, tokenizer_.get()));
    ASSERT_OK_AND_ASSIGN(const PromptImage image, store_.Keep(first_));
    prompt_.images = {image};
    // 14 begins a message, 2 ends it; 18 and 19 stand around an image of four placeholders.
    prompt_.token_ids = {14, 18, 16, 16, 16, 16, 19, 13, 2, 14};
    prompt_.text = "<|im_start|><|vision_start|><|image_pad|><|vision_end|>?<end><|im_start|>";
    const ordered_json parts =
        ordered_json::array({{{"type", "image"}}, {{"type", "text"}, {"text", "?"}}});
    prompt_.chat =
        ChatPrompt{.messages = ordered_json::array({{{"role", "user"}, {"content", parts}}}),
                   .tools = nullptr,
                   .variables = nullptr};
  }

  void Begin(const EpisodeSight& sight) {
    episode_ = MakeMultiTurnEpisode(prompt_, std::make_unique<Scripted>(replies_),
                                    {.max_turns = 4, .max_tokens = 200, .max_turn_tokens = 8},
                                    tokenizer_.get(), sight);
    ASSERT_OK_AND_ASSIGN(turn_, episode_->FirstTurn());
  }
  void Begin() { Begin({.reader = reader_.get(), .store = &store_}); }

  // The policy says "1".
  absl::StatusOr<std::optional<Turn>> Say() {
    Completion completion;
    completion.token_ids = {4, 2};
    completion.logprobs = completion.processed_logprobs = {-1, -1};
    completion.finish_reason = common::v1::FINISH_REASON_STOP;
    common::v1::VersionSpan span;
    span.set_end(2);
    completion.version_spans = {span};
    EXPECT_TRUE(episode_->Continue(std::move(completion), nullptr));
    return episode_->NextTurn();
  }

  std::string DigestOf(const std::string& file) const { return images::ImageDigest(file); }

  const TempFolder folder_;
  const ImageStore store_{folder_ / "run/images"};
  const std::string first_ = SquaresPng(1, 0), second_ = SquaresPng(2, 50);
  std::string model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<ImageReader> reader_;
  Prompt prompt_;
  std::deque<Reply> replies_;
  std::unique_ptr<Episode> episode_;
  Turn turn_;
};

TEST_F(ImageEpisodeTest, RequestsHaveTheImagesOfAllTurns) {
  Reply done;
  done.done = true;
  replies_ = {Shows(second_, "2"), done};
  Begin();
  EXPECT_EQ(turn_.images, prompt_.images);
  ASSERT_OK_AND_ASSIGN(const std::optional<Turn> next, Say());
  ASSERT_TRUE(next.has_value());
  Ids ids = prompt_.token_ids;
  for (const uint32_t id : {4, 2, 14, 18, 16, 16, 16, 16, 19, 5, 2, 14}) ids.push_back(id);
  EXPECT_EQ(next->token_ids, ids);
  ASSERT_EQ(next->images.size(), 2u);
  EXPECT_EQ(next->images[1].digest, DigestOf(second_));
  EXPECT_THAT(ReadImageFile(next->images[1]), IsOkAndHolds(second_));
  EXPECT_THAT(Say(), IsOkAndHolds(std::nullopt));

  Group group;
  group.prompt = prompt_;
  group.completions.push_back(episode_->Take());
  const Completion& completion = group.completions[0];
  EXPECT_EQ(FromProto(ToProto(completion)).segments, completion.segments);
  // A reader of the text sees the picture where the template wrote its placeholder.
  ASSERT_EQ(completion.segments[1].image_places.size(), 1u);
  const TextPlace place = completion.segments[1].image_places[0];
  EXPECT_EQ(completion.text.substr(static_cast<size_t>(place.begin),
                                   static_cast<size_t>(place.end - place.begin)),
            "<|image_pad|>");

  const std::vector<common::v1::Sample> samples = ToSamples(1, {group}, 1);
  ASSERT_EQ(samples.size(), 1u);
  ASSERT_EQ(samples[0].segments_size(), 4);
  EXPECT_THAT(samples[0].segments(0).image_digests(), ElementsAre(DigestOf(first_)));
  EXPECT_THAT(samples[0].segments(1).image_digests(), IsEmpty());
  EXPECT_EQ(samples[0].segments(2).kind(), common::v1::SEGMENT_KIND_ENVIRONMENT);
  EXPECT_THAT(samples[0].segments(2).image_digests(), ElementsAre(DigestOf(second_)));
  EXPECT_THAT(samples[0].segments(3).image_digests(), IsEmpty());
  StepImages images;
  AddImages(group, images);
  EXPECT_EQ(images.size(), 2u);

  // What a run writes is read back the same.
  const std::string path = folder_.Write("run/rollouts/1.jsonl", SampleLines(1, {group}, 1, 0));
  ASSERT_OK_AND_ASSIGN(const Recording recording, ReadRecording(path, 1));
  const common::v1::Sample& read = recording.steps.at(0).at(0);
  ASSERT_EQ(read.segments_size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(read.segments(i).token_ids(),
                ::testing::ElementsAreArray(samples[0].segments(i).token_ids()));
    EXPECT_THAT(read.segments(i).image_digests(),
                ::testing::ElementsAreArray(samples[0].segments(i).image_digests()));
  }
  EXPECT_EQ(recording.images.size(), 2u);
  EXPECT_THAT(ReadImageFile(recording.images.at(DigestOf(second_))), IsOkAndHolds(second_));
}

TEST_F(ImageEpisodeTest, TokensOfAnObservationHaveTheirImages) {
  Reply tokens;
  tokens.token_ids = {18, 16, 16, 16, 16, 19};
  tokens.images = {File(second_)};
  Reply done;
  done.done = true;
  replies_ = {tokens, done};
  Begin();
  ASSERT_OK_AND_ASSIGN(const std::optional<Turn> next, Say());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->images.size(), 2u);
  EXPECT_EQ(next->token_ids.size(), prompt_.token_ids.size() + 8);
  EXPECT_THAT(Say(), IsOkAndHolds(std::nullopt));
  // Their text has no placeholder: the picture stands where they begin.
  const Completion completion = episode_->Take();
  EXPECT_THAT(completion.segments.at(1).image_places, ElementsAre(TextPlace{1, 1}));

  tokens.token_ids = {18, 16, 16, 19};
  replies_ = {tokens};
  Begin();
  EXPECT_THAT(Say(), StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr("the observation"), HasSubstr("images[0]"))));
}

TEST_F(ImageEpisodeTest, RefusesWhatTheModelCannotSee) {
  replies_ = {Shows(second_, "2")};
  Begin(EpisodeSight());
  EXPECT_THAT(Say(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no vision tower")));
  replies_ = {Shows(second_.substr(0, 60), "2")};
  Begin();
  EXPECT_THAT(Say(), StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr("the observation"), HasSubstr("PNG"))));
  Reply placeholder;
  placeholder.messages = ordered_json::array({{{"role", "user"}, {"content", "<|image_pad|>"}}});
  replies_ = {placeholder};
  Begin();
  EXPECT_THAT(
      Say(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 placeholder for 0 images")));
}

TEST_F(ImageEpisodeTest, BoundsTheImagesOfAnEpisode) {
  const std::string padding(size_t{8} << 20, '\0');
  replies_ = {Shows(first_ + padding, "1"), Shows(second_ + padding, "2")};
  Begin();
  EXPECT_OK(Say().status());
  EXPECT_THAT(Say(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("bytes of images in an episode")));
}

TEST_F(ImageEpisodeTest, AnEpisodeGoesOnAfterAnObservationWithoutImages) {
  Reply text;
  text.messages = ordered_json::array({{{"role", "user"}, {"content", "0"}}});
  replies_ = {text};
  Begin();
  ASSERT_OK_AND_ASSIGN(const std::optional<Turn> next, Say());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->images, prompt_.images);
}

class RecordedImagesTest : public ImageEpisodeTest {
 protected:
  static rollout::v1::RecordedCall Call(const Ids& prompt, const Ids& sampled,
                                        const std::vector<std::string>& digests) {
    rollout::v1::RecordedCall call;
    call.mutable_prompt_token_ids()->Add(prompt.begin(), prompt.end());
    call.mutable_token_ids()->Add(sampled.begin(), sampled.end());
    for (size_t i = 0; i < sampled.size(); ++i) {
      call.add_logprobs(-1);
      call.add_processed_logprobs(-1);
    }
    call.add_version_spans()->set_end(static_cast<int64_t>(sampled.size()));
    call.set_finish_reason(common::v1::FINISH_REASON_STOP);
    for (const std::string& digest : digests) call.add_image_digests(digest);
    return call;
  }
};

TEST_F(RecordedImagesTest, SegmentsHaveTheImagesThatCameWithThem) {
  StepImages images;
  for (const std::string& file : {first_, second_}) {
    ASSERT_OK_AND_ASSIGN(const PromptImage kept, store_.Keep(file));
    images.try_emplace(kept.digest, kept);
  }
  const std::string a = DigestOf(first_), b = DigestOf(second_);
  const std::vector<rollout::v1::RecordedCall> calls = {
      Call({1, 16, 16, 3}, {5}, {a}), Call({1, 16, 16, 3, 5, 16, 16, 4}, {6}, {a, b}),
      // The same tokens with another picture.
      Call({1, 16, 16, 3, 5, 7}, {8}, {b})};

  ASSERT_OK_AND_ASSIGN(const Completion episode, EpisodeOfCalls(calls, 0, images));

  ASSERT_EQ(episode.segments.size(), 6u);
  const auto digests_of = [&episode](size_t i) {
    std::vector<std::string> out;
    for (const PromptImage& image : episode.segments[i].images) out.push_back(image.digest);
    return out;
  };
  EXPECT_EQ(episode.segments[0].kind, common::v1::SEGMENT_KIND_PROMPT);
  EXPECT_THAT(digests_of(0), ElementsAre(a));
  EXPECT_EQ(episode.segments[2].kind, common::v1::SEGMENT_KIND_ENVIRONMENT);
  EXPECT_THAT(digests_of(2), ElementsAre(b));
  EXPECT_EQ(episode.segments[4].kind, common::v1::SEGMENT_KIND_PROMPT);
  EXPECT_THAT(digests_of(4), ElementsAre(b));
  for (const size_t sampled : {1, 3, 5}) EXPECT_THAT(digests_of(sampled), IsEmpty());

  Group group;
  group.prompt.token_ids = {77};
  group.completions.push_back(episode);
  const std::vector<common::v1::Sample> samples = ToSamples(1, {group}, 1);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_THAT(samples[0].segments(0).image_digests(), ElementsAre(a));
  EXPECT_THAT(samples[0].segments(2).image_digests(), ElementsAre(b));
  EXPECT_THAT(samples[1].segments(0).image_digests(), ElementsAre(b));
}

TEST_F(RecordedImagesTest, AnImageThatDidNotComeAlongIsAnError) {
  EXPECT_THAT(EpisodeOfCalls({Call({1, 16, 16, 3}, {5}, {DigestOf(first_)})}, 0).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("did not come along")));
}

}  // namespace
}  // namespace tandem::driver
