// Prompts with images in the engine: log-probs are those of transformers (tests/parity/vision_golden.py)
// and, bit for bit, those of the trainer's forward pass, however prompts are cut, cached and preempted.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/read_file.h"
#include "common/model/image_forms.h"
#include "common/model/images/prompt_images.h"
#include "common/model/numerics.h"
#include "nlohmann/json.hpp"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/make_png.h"
#include "tests/support/seen_ends.h"
#include "tests/support/vision_golden.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int32_t kPlaceholder = 36;
constexpr int32_t kVideo = 37;
constexpr int32_t kBreak = 37;  // of models with lines of placeholders, which see no videos

struct Row {
  std::vector<int32_t> ids;
  std::vector<ImageFile> files;
  std::vector<float> logprobs;
};

// A picture of 48 x 32 pixels, of which the processor makes 12 x 8 patches: 24 placeholders, 6 a line.
ImageFile Picture(int seed) {
  return std::make_shared<const std::string>(testing::MakePng(48, 32, [seed](int x, int y) {
    return std::array<uint8_t, 3>{static_cast<uint8_t>(x * 5 + seed * 40),
                                  static_cast<uint8_t>(y * 7 + seed * 90),
                                  static_cast<uint8_t>((x * y + seed * 17) % 256)};
  }));
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
}

void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
}

class ImagesTest : public EngineTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { model::SetNumerics(model::Numerics::kExact); }
  void TearDown() override {
    engine_.reset();
    model::SetNumerics(model::Numerics::kFast);
  }

  std::string path() const { return testing::VisionGolden(GetParam()); }

  static EngineOptions Options() {
    EngineOptions options;
    options.dtype = at::kFloat;
    options.block_size = 16;
    options.kv_cache_bytes = int64_t{1} << 20;
    return options;
  }

  // Of steps of so many tokens; more where an image has to fit.
  EngineOptions InChunks(int64_t num_tokens) const {
    EngineOptions options = Options();
    options.scheduler.max_num_batched_tokens = num_tokens;
    const model::ModelSpec spec = Spec();
    if (!spec.vision->images_see_ahead) return options;
    options.scheduler.max_num_seqs = 2;
    options.scheduler.max_num_batched_tokens =
        std::max(num_tokens, spec.vision->rows_per_tile() + 2);
    return options;
  }

  model::ModelSpec Spec() const {
    const io::ModelConfig config = io::ReadModelConfig(path()).value();
    return model::ParseModelSpec(config.json, config.path).value();
  }

  // `before` tokens of text, the placeholders of so many pictures with a token behind each.
  std::vector<int32_t> PictureIds(int64_t before, int num_pictures) const {
    const bool has_breaks = Spec().vision->has_line_breaks;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < before; ++i) ids.push_back(static_cast<int32_t>(3 + i % 30));
    for (int i = 0; i < num_pictures; ++i) {
      for (int line = 0; line < 4; ++line) {
        if (has_breaks && line > 0) ids.push_back(kBreak);
        ids.insert(ids.end(), 6, kPlaceholder);
      }
      ids.push_back(5 + i);
    }
    return ids;
  }

  // Of the rows of one picture, all that the tower makes of it.
  int64_t PictureRowBytes() const { return 24 * 4 * Spec().image_row_size(); }

  void StartCase(EngineOptions options = Options()) {
    const model::ModelSpec spec = Spec();
    options.image_preparer = model::ImagePreparer::Load(path(), *spec.vision);
    ASSERT_OK(options.image_preparer.status());
    StartFolder(std::move(options), path());
  }

  std::vector<Row> GoldenRows() const {
    const nlohmann::json golden =
        nlohmann::json::parse(io::ReadFile(path() + "/golden.json").value());
    std::vector<Row> rows;
    for (const nlohmann::json& of_file : golden["rows"]) {
      Row& row = rows.emplace_back();
      row.ids = of_file["ids"].get<std::vector<int32_t>>();
      row.logprobs = of_file["logprobs"].get<std::vector<float>>();
      for (const std::string name : of_file["images"]) {
        row.files.push_back(
            std::make_shared<const std::string>(io::ReadFile(path() + "/" + name).value()));
      }
    }
    return rows;
  }

  std::shared_ptr<const RequestImages> Read(const std::vector<ImageFile>& files,
                                            const std::vector<int32_t>& ids) {
    auto images = engine_->ReadImages(files, ids);
    EXPECT_OK(images.status());
    return images.value_or(nullptr);
  }

  std::vector<float> ScoreOf(const std::vector<int32_t>& ids, const std::vector<ImageFile>& files) {
    const absl::StatusOr<ScoreResult> scored =
        Score({.token_ids = ids, .images = Read(files, ids)});
    EXPECT_OK(scored.status());
    return scored.ok() ? scored->logprobs : std::vector<float>();
  }

  GenerationRequest Asked(std::vector<int32_t> ids, const std::vector<ImageFile>& files,
                          int64_t max_tokens) {
    GenerationRequest request = Greedy(std::move(ids), max_tokens);
    request.ignore_eos = true;
    request.images = Read(files, request.prompt_ids);
    return request;
  }

  // All rows at once.
  std::vector<std::vector<float>> ScoreAll(const std::vector<Row>& rows) {
    std::vector<absl::StatusOr<ScoreResult>> results(rows.size(), absl::UnknownError("no answer"));
    std::vector<absl::Notification> done(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_OK(engine_
                    ->Score({.token_ids = rows[i].ids, .images = Read(rows[i].files, rows[i].ids)},
                            [&, i](absl::StatusOr<ScoreResult> answer) {
                              results[i] = std::move(answer);
                              done[i].Notify();
                            })
                    .status());
    }
    std::vector<std::vector<float>> logprobs;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(done[i].WaitForNotificationWithTimeout(kPatience)) << i;
      EXPECT_OK(results[i].status());
      logprobs.push_back(results[i].ok() ? results[i]->logprobs : std::vector<float>());
    }
    return logprobs;
  }

  // The trainer's log-probs of a sequence, alone in its batch.
  std::vector<float> TrainerLogProbs(const std::vector<int32_t>& tokens,
                                     const std::vector<ImageFile>& files) {
    const at::NoGradGuard no_grad;
    const auto arena = tandem::testing::PlainCopy(*engine_->weights().live());
    const model::VisionSpec& spec = *model_->spec().vision;
    const model::ImagePreparer preparer = model::ImagePreparer::Load(path(), spec).value();
    std::vector<model::PreparedImage> prepared;
    const std::vector<images::ImageForm> forms =
        model::FormsOf(spec, std::vector<int64_t>(tokens.begin(), tokens.end()), files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      prepared.push_back(preparer.Prepare(*files[i], "", forms[i]).value());
    }
    std::vector<const model::PreparedImage*> images;
    std::vector<model::ImageGrid> grids;
    for (const model::PreparedImage& image : prepared) {
      images.push_back(&image);
      grids.push_back(image.grid);
    }
    const std::vector<int64_t> wide(tokens.begin(), tokens.end());
    const model::ImagePlaces places = model::PlaceImages(spec, wide, grids).value();
    const at::Tensor ids = at::tensor(wide, at::kLong);
    const at::Tensor positions = model::PositionsOf(places);
    model::PackedAttention attention = tandem::testing::AttentionOf(spec, places, ids.numel());
    const model::Rotary rotary = model_->MakeRotary(positions);
    at::Tensor x = model_->Embed(*arena, ids, positions);
    const at::Tensor image_tokens = at::tensor(places.tokens, at::kLong);
    at::Tensor rows;
    if (!images.empty()) {
      rows = model::EncodeImages(*model_, *arena, model::PatchesOf(images));
      x = model::PutImages(x, image_tokens, rows);
    }
    for (int64_t layer = 0; layer < model_->spec().num_layers(); ++layer) {
      x = model::AddImages(model_->Block(*arena, layer, x, rotary, attention), image_tokens, rows,
                           layer);
    }
    const int64_t count = ids.numel() - 1;
    const at::Tensor logprobs =
        model_
            ->HeadLogProbs(*arena, model_->FinalNorm(*arena, x).narrow(0, 0, count),
                           ids.narrow(0, 1, count), at::ones({count}))
            .logprobs.contiguous();
    const float* const data = logprobs.const_data_ptr<float>();
    return {data, data + logprobs.numel()};
  }

  // The engine's log-probs of the golden rows are those of transformers, and bit for bit the trainer's.
  void ExpectGolden() {
    const std::vector<Row> rows = GoldenRows();
    const std::vector<std::vector<float>> found = ScoreAll(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(found[i], rows[i].logprobs);
      ExpectSameBits(found[i], TrainerLogProbs(rows[i].ids, rows[i].files));
    }
  }

  void ExpectTrainersBitsInBfloat16() {
    EngineOptions options = InChunks(20);
    options.dtype = at::kBFloat16;
    StartCase(options);
    for (const Row& row : GoldenRows()) {
      ExpectSameBits(ScoreOf(row.ids, row.files), TrainerLogProbs(row.ids, row.files));
    }
  }

  void ExpectGreedyTokens() {
    const int64_t video = Spec().vision->video_token_id;
    for (const Row& row : GoldenRows()) {
      const SampleChunk sample = Generate(Asked(row.ids, row.files, 12));
      ASSERT_EQ(sample.token_ids.size(), 12U);
      std::vector<int32_t> all = row.ids;
      all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
      const size_t first = row.ids.size() - 1;
      ASSERT_OK_AND_ASSIGN(
          const ScoreResult scored,
          Score({.token_ids = all, .num_top_logprobs = 3, .images = Read(row.files, all)}));
      for (size_t i = 0; i < sample.token_ids.size(); ++i) {
        // A placeholder is never sampled.
        const auto& top = scored.top_logprobs[first + i];
        size_t best = 0;
        while (top[best].id == kPlaceholder || top[best].id == video) ++best;
        EXPECT_EQ(sample.token_ids[i], top[best].id) << i;
      }
      ExpectSameBits(sample.logprobs, {scored.logprobs.begin() + first, scored.logprobs.end()});
    }
  }
};

TEST_P(ImagesTest, LogProbsAreThoseOfTransformers) {
  StartCase();
  ExpectGolden();
}

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
    std::vector<Row> rows;
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
  std::vector<Row> rows;
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
                                               .head_dim = spec.full_attention().head_dim});
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
  const Row text = GoldenRows()[2];
  ASSERT_TRUE(text.files.empty());
  ExpectNear(ScoreOf(text.ids, {}), text.logprobs);
  EXPECT_THAT(engine_->ReadImages({Picture(1)}, PictureIds(4, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images: ")));
}

INSTANTIATE_TEST_SUITE_P(Cases, ImagesTest, ::testing::ValuesIn(testing::AnySizeGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

// Towers that see tiles: a picture has other numbers of rows than above.
class TileImagesTest : public ImagesTest {};

TEST_P(TileImagesTest, LogProbsAreThoseOfTransformersHoweverPromptsAreCut) {
  StartCase();
  ExpectGolden();
  StartCase(InChunks(7));
  ExpectGolden();
}

TEST_P(TileImagesTest, GreedyTokensAreTheLikeliestOfTheScoredSequence) {
  StartCase();
  ExpectGreedyTokens();
}

TEST_P(TileImagesTest, InBfloat16TheBitsAreTheTrainers) { ExpectTrainersBitsInBfloat16(); }

TEST_P(TileImagesTest, ASequenceOfFewerPlaceholdersIsNamed) {
  StartCase();
  const Row row = GoldenRows()[0];
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
  const std::vector<Row> rows = GoldenRows();
  for (int round = 0; round < 2; ++round) {
    for (const Row& row : rows) ExpectNear(ScoreOf(row.ids, row.files), row.logprobs);
  }
  // Each form of an image was encoded once.
  std::set<std::pair<std::string, size_t>> forms;
  for (const Row& row : rows) {
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

class TextModelTest : public EngineTest {};

TEST_F(TextModelTest, ATextModelRefusesImages) {
  StartRandom({});
  EXPECT_THAT(engine_->ReadImages({Picture(1)}, Prompt(9)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("images: the model has no vision tower")));
}

}  // namespace
}  // namespace tandem::rollout
