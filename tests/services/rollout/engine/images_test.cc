// Prompts with images in the engine: log-probs are those of transformers (tests/parity/vision_golden.py)
// and, bit for bit, those of the trainer's forward pass, however prompts are cut, cached and preempted.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/services/rollout/engine/images_fixture.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_P(ImagesTest, LogProbsAreThoseOfTransformers) {
  StartCase();
  ExpectGolden();
}

TEST_P(ImagesTest, LogProbsInFastNumericsAreThoseOfTransformers) { ExpectGoldenInFastNumerics(); }

// Steps of 7 tokens cut every image's run.
TEST_P(ImagesTest, ChunksOfPromptsChangeNothing) {
  EngineOptions options = Options();
  options.scheduler.max_num_batched_tokens = 7;
  StartCase(options);
  ExpectGolden();
}

TEST_P(ImagesTest, GreedyTokensAreTheLikeliestOfTheScoredSequence) {
  StartCase();
  ExpectGreedyTokens();
}

TEST_P(ImagesTest, SamplesOfAPromptShareItsImages) {
  StartCase();
  GenerationRequest request = Asked(PictureIds(4, 2), {Picture(1), Picture(2)}, 20);
  request.n = 4;
  request.seed = 3;
  request.filter.temperature = 1.0;
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  ASSERT_OK(outcome.status());
  EXPECT_EQ(engine_->Info().images->encoder.num_images, 2);
  EXPECT_EQ(engine_->Info().scheduler.num_prefilled_tokens,
            static_cast<int64_t>(request.prompt_ids.size()));
  for (int32_t i = 0; i < 4; ++i) {
    const SampleChunk sample = outcome.sample(i);
    std::vector<int32_t> all = request.prompt_ids;
    all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
    EXPECT_THAT(sample.token_ids, Not(::testing::Contains(kPlaceholder)));
    const std::vector<float> trainer = TrainerLogProbs(all, {Picture(1), Picture(2)});
    ExpectSameBits(
        sample.logprobs,
        {trainer.begin() + static_cast<int64_t>(request.prompt_ids.size()) - 1, trainer.end()});
  }
}

// All pictures of the first steps' prompts are encoded together, in one step where its share has room.
TEST_P(ImagesTest, PicturesOfOneAndOfSeveralPromptsAreEncodedTogether) {
  for (const int64_t share : {int64_t{96}, int64_t{4096}}) {
    SCOPED_TRACE(share);
    EngineOptions options = Options();
    options.image_encoder.max_patches_per_step = share;
    StartCase(options);
    std::vector<GoldenRow> rows;
    for (int i = 0; i < 4; ++i) {
      rows.push_back({PictureIds(i, 3), {Picture(i), Picture(i + 1), Picture(i + 2)}, {}});
    }
    const std::vector<std::vector<float>> found = ScoreAll(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSameBits(found[i], TrainerLogProbs(rows[i].ids, rows[i].files));
    }
    const EngineInfo::Images images = *engine_->Info().images;
    EXPECT_EQ(images.encoder.num_images, 6);
    EXPECT_EQ(images.encoder.num_patches, 6 * 96);
    EXPECT_GT(images.encoder.seconds, 0);
    EXPECT_EQ(images.encoder.num_waiting, 0);
    EXPECT_EQ(images.encoder.num_row_queries, 12);
    EXPECT_EQ(images.encoder.num_row_hits, 6);
    EXPECT_EQ(images.encoder.num_rows_evicted, 0);
    EXPECT_EQ(images.encoder.row_bytes, 6 * 24 * model_->spec().image_row_size() * 4);
    EXPECT_EQ(images.pixels.num_decoded, 6);
    engine_.reset();
  }
}

TEST_P(ImagesTest, EqualIdsWithOtherPicturesShareOnlyWhatComesBeforeThem) {
  if (Spec().HasLinearAttention()) GTEST_SKIP() << "no prefix is cached";
  StartCase();
  // Two blocks of text, then a picture that begins in the third.
  const std::vector<int32_t> ids = PictureIds(36, 1);
  const SampleChunk first = Generate(Asked(ids, {Picture(1)}, 6));
  const SampleChunk other = Generate(Asked(ids, {Picture(2)}, 6));
  const SampleChunk again = Generate(Asked(ids, {Picture(1)}, 6));

  EXPECT_EQ(first.num_cached_tokens, 0);
  EXPECT_EQ(other.num_cached_tokens, 32);
  EXPECT_EQ(again.num_cached_tokens, 48);  // all whole blocks but the one with the last token
  EXPECT_EQ(again.token_ids, first.token_ids);
  ExpectSameBits(again.logprobs, first.logprobs);
  std::vector<int32_t> all = ids;
  all.insert(all.end(), other.token_ids.begin(), other.token_ids.end());
  const std::vector<float> trainer = TrainerLogProbs(all, {Picture(2)});
  ExpectSameBits(other.logprobs,
                 {trainer.begin() + static_cast<int64_t>(ids.size()) - 1, trainer.end()});
  EXPECT_NE(other.logprobs, first.logprobs);
}

TEST_P(ImagesTest, AnImageIsEncodedAgainWhenItsRowsWereGivenUp) {
  EngineOptions options = Options();
  options.image_encoder.max_row_bytes = PictureRowBytes();
  options.image_encoder.max_patches_per_step = 96;
  options.scheduler.max_num_batched_tokens = 20;
  StartCase(options);
  std::vector<GoldenRow> rows;
  for (int i = 0; i < 6; ++i) rows.push_back({PictureIds(3, 2), {Picture(i), Picture(i + 1)}, {}});
  const std::vector<std::vector<float>> found = ScoreAll(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameBits(found[i], TrainerLogProbs(rows[i].ids, rows[i].files));
  }
  const int64_t encoded = engine_->Info().images->encoder.num_images;
  EXPECT_GE(encoded, 7);  // each at least once
  EXPECT_GE(engine_->Info().images->encoder.num_rows_evicted, 6);
  EXPECT_EQ(engine_->Info().images->encoder.row_bytes, 24 * model_->spec().image_row_size() * 4);
  // Later pictures took the place of the first one.
  ExpectSameBits(ScoreOf(rows[0].ids, rows[0].files), found[0]);
  EXPECT_EQ(engine_->Info().images->encoder.num_images, encoded + 2);
}

TEST_P(ImagesTest, PreemptedSequencesGetTheirImagesAgain) {
  EngineOptions options = Options();
  options.scheduler.max_num_batched_tokens = 40;
  options.image_encoder.max_row_bytes = PictureRowBytes();
  // 14 blocks of 16 tokens, where each of six requests needs 6 in the end.
  const model::ModelSpec spec = Spec();
  const auto num_caches = std::count_if(
      spec.layers.begin(), spec.layers.end(),
      [](const model::LayerSpec& layer) { return !layer.attention.delta.has_value(); });
  options.kv_cache_bytes =
      14 * model::PagedKvCache::BytesPerBlock({.num_layers = num_caches,
                                               .num_kv_heads = 1,
                                               .head_dim = spec.full_attention().head_dim,
                                               .device = options.device});
  StartCase(options);
  ASSERT_EQ(engine_->Info().num_kv_blocks, 14);
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(Asked(PictureIds(3 + i, 1), {Picture(i)}, 50));
  std::vector<Outcome> outcomes(requests.size());
  SubmitTogether(requests, outcomes);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(outcomes[i].Wait());
    ASSERT_OK(outcomes[i].status());
    const SampleChunk sample = outcomes[i].sample();
    std::vector<int32_t> all = PictureIds(3 + i, 1);
    const auto first = static_cast<int64_t>(all.size()) - 1;
    all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
    const std::vector<float> trainer = TrainerLogProbs(all, {Picture(i)});
    ExpectSameBits(sample.logprobs, {trainer.begin() + first, trainer.end()});
  }
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
}

TEST_P(ImagesTest, ACommitMakesTheRowsOfItsTower) {
  StartCase();
  const std::vector<int32_t> ids = PictureIds(4, 1);
  const std::vector<float> before = ScoreOf(ids, {Picture(1)});
  Outcome outcome;
  SubmitAndPauseAt(Asked(ids, {Picture(1)}, 12), 3, outcome);
  CommitRandom(/*version=*/1, /*seed=*/7);
  engine_->Resume([] {});
  ASSERT_TRUE(outcome.Wait());
  ASSERT_OK(outcome.status());

  const std::vector<float> after = ScoreOf(ids, {Picture(1)});
  ExpectSameBits(after, TrainerLogProbs(ids, {Picture(1)}));
  EXPECT_NE(after, before);
  const SampleChunk sample = outcome.sample();
  std::vector<int32_t> all = ids;
  all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
  const std::vector<float> trainer = TrainerLogProbs(all, {Picture(1)});
  // The tokens that the new version sampled.
  ExpectSameBits({sample.logprobs.begin() + 3, sample.logprobs.end()},
                 {trainer.begin() + static_cast<int64_t>(ids.size()) + 2, trainer.end()});
}

TEST_P(ImagesTest, RowsStayWhereACommitLeavesTheTowerAlone) {
  StartCase();
  const std::vector<int32_t> ids = PictureIds(4, 1);
  const std::vector<float> before = ScoreOf(ids, {Picture(1)});
  const auto plain = tandem::testing::PlainCopy(*engine_->weights().live());
  plain->Get(model_->table().embedding()).mul_(1.5);
  ASSERT_OK_AND_ASSIGN(const auto staged, engine_->weights().Staged());
  staged->CopyFrom(*plain);
  ASSERT_OK(engine_->Commit(1, absl::Now() + kPatience).status());

  const std::vector<float> after = ScoreOf(ids, {Picture(1)});

  EXPECT_EQ(engine_->Info().images->encoder.num_images, 1);
  EXPECT_NE(after, before);
  ExpectSameBits(after, TrainerLogProbs(ids, {Picture(1)}));
}

TEST_P(ImagesTest, InBfloat16TheBitsAreTheTrainers) { ExpectTrainersBitsInBfloat16(); }

TEST_P(ImagesTest, ASleepingEngineWakesWithItsImages) {
  StartCase();
  const GenerationRequest request = Asked(PictureIds(4, 1), {Picture(1)}, 12);
  const SampleChunk expected = Generate(request);
  Outcome outcome;
  SubmitAndPauseAt(request, 3, outcome, {.kv_cache = true});
  engine_->Resume([] {});
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(outcome.sample().token_ids, expected.token_ids);
  ExpectSameBits(outcome.sample().logprobs, expected.logprobs);
}

TEST_P(ImagesTest, ABegunSampleContinues) {
  StartCase();
  GenerationRequest request = Asked(PictureIds(4, 1), {Picture(1)}, 12);
  const SampleChunk whole = Generate(request);
  request.begun.push_back({0, {whole.token_ids.begin(), whole.token_ids.begin() + 5}, false});
  const SampleChunk rest = Generate(request);
  EXPECT_EQ(rest.token_ids,
            (std::vector<int32_t>{whole.token_ids.begin() + 5, whole.token_ids.end()}));
}

TEST_P(ImagesTest, BadInputNamesTheImageOrTheTokenAndHarmsNobody) {
  StartCase();
  Outcome unharmed;
  Submit(Asked(PictureIds(4, 1), {Picture(1)}, 40), unharmed);
  const std::vector<int32_t> ids = PictureIds(4, 1);
  const auto read = [&](std::vector<std::string> files, const std::vector<int32_t>& tokens) {
    std::vector<ImageFile> shared;
    for (std::string& file : files) {
      shared.push_back(std::make_shared<const std::string>(std::move(file)));
    }
    return engine_->ReadImages(std::move(shared), tokens).status();
  };
  const std::string picture = *Picture(1);
  const auto is_invalid = [](auto... parts) {
    return StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(parts)...));
  };

  EXPECT_THAT(read({picture.substr(0, 200)}, ids), is_invalid("images[0]", "PNG"));
  EXPECT_THAT(read({picture, "GIF89a"}, PictureIds(4, 2)), is_invalid("images[1]", "GIF"));
  // The header says 60,000 x 60,000 pixels.
  std::string huge = picture;
  const std::string header =
      testing::BigEndian(60'000) + testing::BigEndian(60'000) + std::string("\x08\x02\0\0\0", 5);
  huge.replace(8, 25, testing::PngChunk("IHDR", header));
  EXPECT_THAT(read({huge}, ids), is_invalid("images[0]", "60000 x 60000"));
  EXPECT_THAT(read({picture, picture}, ids), is_invalid("images[1]", "no placeholder"));
  std::vector<int32_t> fewer = ids;
  fewer.erase(fewer.begin() + 4);
  EXPECT_THAT(read({picture}, fewer),
              is_invalid("images[0]", "expected 24 placeholders",
                         Spec().vision->has_line_breaks ? "found 5" : "found 23"));
  std::vector<int32_t> more = ids;
  more.push_back(kPlaceholder);
  EXPECT_THAT(read({picture}, more),
              is_invalid(absl::StrCat("token ", ids.size()), "no image is left"));
  EXPECT_THAT(read({picture}, {3, 4, 5}), is_invalid("images: expected at most 0 images"));
  // Placeholders without any image.
  EXPECT_THAT(Score({.token_ids = ids}), is_invalid("images: token 4"));
  if (Spec().vision->video_token_id == kVideo) {
    GenerationRequest bare = Greedy({3, kVideo, 5}, 4);
    EXPECT_THAT(engine_->Submit(bare, {}).status(), is_invalid("images: token 1"));
  }

  ASSERT_TRUE(unharmed.Wait());
  ASSERT_OK(unharmed.status());
  EXPECT_EQ(unharmed.sample().token_ids.size(), 40U);
}

TEST_P(ImagesTest, FilesThatWaitAreBounded) {
  EngineOptions options = Options();
  options.max_image_bytes = static_cast<int64_t>(Picture(1)->size()) * 2;
  StartCase(options);
  Outcome first, second;
  SubmitAndPauseAt(Asked(PictureIds(4, 1), {Picture(1)}, 12), 1, first);
  Submit(Asked(PictureIds(4, 1), {Picture(1)}, 12), second);
  EXPECT_THAT(engine_->Submit(Asked(PictureIds(4, 1), {Picture(1)}, 12), {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("bytes of images")));
  engine_->Resume([] {});
  ASSERT_TRUE(first.Wait());
  ASSERT_TRUE(second.Wait());
  EXPECT_EQ(Generate(Asked(PictureIds(4, 1), {Picture(1)}, 12)).token_ids.size(), 12U);
}

TEST_P(ImagesTest, AFolderWithoutAProcessorTakesText) {
  StartFolder(Options(), path());
  const GoldenRow text = GoldenRows()[2];
  ASSERT_TRUE(text.files.empty());
  ExpectNear(ScoreOf(text.ids, {}), text.logprobs);
  EXPECT_THAT(engine_->ReadImages({Picture(1)}, PictureIds(4, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images: ")));
}

INSTANTIATE_TEST_SUITE_P(Cases, ImagesTest, ::testing::ValuesIn(testing::AnySizeGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

class TextModelTest : public EngineTest {};

TEST_F(TextModelTest, ATextModelRefusesImages) {
  StartRandom({});
  EXPECT_THAT(engine_->ReadImages({Picture(1)}, Prompt(9)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("images: the model has no vision tower")));
}

}  // namespace
}  // namespace tandem::rollout
