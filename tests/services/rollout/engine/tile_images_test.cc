// The same of models that see tiles of images: several forms of an image, and images whose tokens see one
// another.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/rollout/engine/images_fixture.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Towers that see tiles: a picture has other numbers of rows than above.
class TileImagesTest : public ImagesTest {};

TEST_P(TileImagesTest, LogProbsAreThoseOfTransformersHoweverPromptsAreCut) {
  StartCase();
  ExpectGolden();
  StartCase(InChunks(7));
  ExpectGolden();
}

TEST_P(TileImagesTest, LogProbsInFastNumericsAreThoseOfTransformers) {
  ExpectGoldenInFastNumerics();
}

TEST_P(TileImagesTest, GreedyTokensAreTheLikeliestOfTheScoredSequence) {
  StartCase();
  ExpectGreedyTokens();
}

TEST_P(TileImagesTest, InBfloat16TheBitsAreTheTrainers) { ExpectTrainersBitsInBfloat16(); }

TEST_P(TileImagesTest, ASequenceOfFewerPlaceholdersIsNamed) {
  StartCase();
  const GoldenRow row = GoldenRows()[0];
  std::vector<int32_t> fewer = row.ids;
  fewer.erase(std::find(fewer.begin(), fewer.end(), kPlaceholder));
  EXPECT_THAT(engine_->ReadImages(row.files, fewer).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("images[0]: expected"), HasSubstr("placeholders"))));
}

// A picture's tokens see one another.
class WholeImagesTest : public ImagesTest {
 protected:
  int64_t num_rows() const { return Spec().vision->rows_per_tile(); }

  std::vector<int32_t> Ids(int64_t before, int num_pictures) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < before; ++i) ids.push_back(static_cast<int32_t>(3 + i % 30));
    for (int i = 0; i < num_pictures; ++i) {
      ids.insert(ids.end(), static_cast<size_t>(num_rows()), kPlaceholder);
      ids.push_back(5 + i);
    }
    return ids;
  }

  void ExpectTrainersBits(const SampleChunk& sample, std::vector<int32_t> ids,
                          const std::vector<ImageFile>& files) {
    const auto first = static_cast<int64_t>(ids.size()) - 1;
    ids.insert(ids.end(), sample.token_ids.begin(), sample.token_ids.end());
    const std::vector<float> trainer = TrainerLogProbs(ids, files);
    ExpectSameBits(sample.logprobs, {trainer.begin() + first, trainer.end()});
  }
};

// The cache holds blocks that end within the picture, of which the rest is computed.
TEST_P(WholeImagesTest, AKnownPrefixMayEndWithinAnImage) {
  EngineOptions options = InChunks(20);
  StartCase(options);
  const std::vector<ImageFile> files = {Picture(1), Picture(2)};
  for (const int64_t before : {int64_t{13}, int64_t{14}, int64_t{30}}) {
    SCOPED_TRACE(before);
    const std::vector<int32_t> ids = Ids(before, 2);
    const SampleChunk first = Generate(Asked(ids, files, 6));
    const SampleChunk again = Generate(Asked(ids, files, 6));
    const SampleChunk other = Generate(Asked(ids, {Picture(1), Picture(3)}, 6));
    EXPECT_EQ(again.num_cached_tokens, (static_cast<int64_t>(ids.size()) - 1) / 16 * 16);
    EXPECT_EQ(again.token_ids, first.token_ids);
    ExpectSameBits(again.logprobs, first.logprobs);
    ExpectTrainersBits(first, ids, files);
    ExpectTrainersBits(other, ids, {Picture(1), Picture(3)});
    // Of the second picture nothing is known.
    EXPECT_EQ(other.num_cached_tokens, (before + num_rows() + 1) / 16 * 16);
  }
}

TEST_P(WholeImagesTest, PromptsThatShareStepsHaveTheTrainersBits) {
  EngineOptions options = InChunks(20);
  options.scheduler.max_num_seqs = 5;
  options.scheduler.max_num_batched_tokens = num_rows() + 5;
  StartCase(options);
  std::vector<GenerationRequest> requests;
  std::vector<std::vector<ImageFile>> files;
  for (int i = 0; i < 7; ++i) {
    files.push_back({Picture(i), Picture(i + 1)});
    requests.push_back(Asked(Ids(i, 2), files.back(), 8));
  }
  requests.push_back(Asked(std::vector<int32_t>(40, 7), {}, 8));
  files.emplace_back();
  std::vector<Outcome> outcomes(requests.size());
  SubmitTogether(requests, outcomes);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(outcomes[i].Wait());
    ASSERT_OK(outcomes[i].status());
    ExpectTrainersBits(outcomes[i].sample(), requests[i].prompt_ids, files[i]);
  }
}

TEST_P(WholeImagesTest, StepsWithoutRoomForAnImageAreRefused) {
  EngineOptions options = InChunks(1);
  --options.scheduler.max_num_batched_tokens;
  const model::Transformer model(Spec());
  EXPECT_THAT(
      Engine::Create(options, model, /*tokenizer=*/nullptr).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("rollout.max_num_batched_tokens: a step computes an image whole")));
}

TEST_P(WholeImagesTest, ATokenOfTextIsBehindEveryImage) {
  StartCase();
  std::vector<int32_t> ids = Ids(2, 1);
  ids.pop_back();
  EXPECT_THAT(engine_->ReadImages({Picture(1)}, ids).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("images[0]: expected a token of text behind")));
}

INSTANTIATE_TEST_SUITE_P(Cases, WholeImagesTest, ::testing::Values("gemma3", "gemma3-long"),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

// An image has rows of its own in each form: the caches tell them apart.
TEST_P(TileImagesTest, AnImageMayBeAloneAndAmongOthersInOneEngine) {
  StartCase();
  const std::vector<GoldenRow> rows = GoldenRows();
  for (int round = 0; round < 2; ++round) {
    for (const GoldenRow& row : rows) ExpectNear(ScoreOf(row.ids, row.files), row.logprobs);
  }
  // Each form of an image was encoded once.
  std::set<std::pair<std::string, size_t>> forms;
  for (const GoldenRow& row : rows) {
    const bool differs = Spec().vision->tiles->canvas.has_value() && row.files.size() > 1;
    for (const ImageFile& file : row.files) forms.emplace(*file, differs ? 1 : 0);
  }
  EXPECT_EQ(engine_->Info().images->encoder.num_images, static_cast<int64_t>(forms.size()));
}

INSTANTIATE_TEST_SUITE_P(Cases, TileImagesTest, ::testing::ValuesIn(testing::AllTileGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });
INSTANTIATE_TEST_SUITE_P(Canvases, TileImagesTest,
                         ::testing::ValuesIn(testing::CanvasGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

}  // namespace
}  // namespace tandem::rollout
