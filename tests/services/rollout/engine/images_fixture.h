// Engines of the golden models that see images (tests/parity/vision_golden.py), their prompts, and what the
// trainer's forward pass says of them. Both compute on IMAGES_DEVICE, the CPU or a GPU.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_IMAGES_FIXTURE_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_IMAGES_FIXTURE_H_

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/read_file.h"
#include "common/model/image_forms.h"
#include "common/model/images/prompt_images.h"
#include "common/model/numerics.h"
#include "common/model/parallel_fit.h"
#include "nlohmann/json.hpp"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/cuda_device.h"
#include "tests/support/make_png.h"
#include "tests/support/seen_ends.h"
#include "tests/support/vision_golden.h"

namespace tandem::rollout {

inline const at::Device kDevice(IMAGES_DEVICE);
inline constexpr int32_t kPlaceholder = 36;
inline constexpr int32_t kVideo = 37;
inline constexpr int32_t kBreak = 37;  // of models with lines of placeholders, which see no videos

struct GoldenRow {
  std::vector<int32_t> ids;
  std::vector<ImageFile> files;
  std::vector<float> logprobs;
};

// A picture of 48 x 32 pixels, of which the processor makes 12 x 8 patches: 24 placeholders, 6 a line.
inline ImageFile Picture(int seed) {
  return std::make_shared<const std::string>(testing::MakePng(48, 32, [seed](int x, int y) {
    return std::array<uint8_t, 3>{static_cast<uint8_t>(x * 5 + seed * 40),
                                  static_cast<uint8_t>(y * 7 + seed * 90),
                                  static_cast<uint8_t>((x * y + seed * 17) % 256)};
  }));
}

inline void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
}

inline void ExpectNearOnAverage(const std::vector<float>& found, const std::vector<float>& expected,
                                double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += std::abs(found[i] - expected[i]);
  EXPECT_LT(sum / static_cast<double>(found.size()), tolerance);
}

inline void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
}

class ImagesTest : public EngineTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) {
      TANDEM_SKIP_WITHOUT_CUDA();
      const absl::Status fits = model::CheckRolloutDevice(Spec(), kDevice.str());
      if (!fits.ok()) GTEST_SKIP() << fits.message();
    }
    model::SetNumerics(model::Numerics::kExact);
  }
  void TearDown() override {
    engine_.reset();
    model::SetNumerics(model::Numerics::kFast);
  }

  std::string path() const { return testing::VisionGolden(GetParam()); }

  static EngineOptions Options() {
    EngineOptions options;
    options.dtype = at::kFloat;
    options.device = kDevice;
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

  std::vector<GoldenRow> GoldenRows() const {
    const nlohmann::json golden =
        nlohmann::json::parse(io::ReadFile(path() + "/golden.json").value());
    std::vector<GoldenRow> rows;
    for (const nlohmann::json& of_file : golden["rows"]) {
      GoldenRow& row = rows.emplace_back();
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
  std::vector<std::vector<float>> ScoreAll(const std::vector<GoldenRow>& rows) {
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
    model::Arena arena(model_->table(), engine_->weights().dtype(), kDevice);
    arena.CopyFrom(*tandem::testing::PlainCopy(*engine_->weights().live()));
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
    const at::Tensor ids = at::tensor(wide, at::kLong).to(kDevice);
    const at::Tensor positions = model::PositionsOf(places).to(kDevice);
    model::PackedAttention attention = tandem::testing::AttentionOf(spec, places, ids.numel());
    const model::Rotary rotary = model_->MakeRotary(positions);
    at::Tensor x = model_->Embed(arena, ids, positions);
    const at::Tensor image_tokens = at::tensor(places.tokens, at::kLong).to(kDevice);
    at::Tensor rows;
    if (!images.empty()) {
      rows = model::EncodeImages(*model_, arena, model::PatchesOf(images));
      x = model::PutImages(x, image_tokens, rows);
    }
    for (int64_t layer = 0; layer < model_->spec().num_layers(); ++layer) {
      x = model::AddImages(model_->Block(arena, layer, x, rotary, attention), image_tokens, rows,
                           layer);
    }
    const int64_t count = ids.numel() - 1;
    const at::Tensor logprobs =
        model_
            ->HeadLogProbs(arena, model_->FinalNorm(arena, x).narrow(0, 0, count),
                           ids.narrow(0, 1, count), at::ones({count}).to(kDevice))
            .logprobs.cpu()
            .contiguous();
    const float* const data = logprobs.const_data_ptr<float>();
    return {data, data + logprobs.numel()};
  }

  // The engine's log-probs of the golden rows are those of transformers, and bit for bit the trainer's.
  void ExpectGolden() {
    const std::vector<GoldenRow> rows = GoldenRows();
    const std::vector<std::vector<float>> found = ScoreAll(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(found[i], rows[i].logprobs);
      ExpectSameBits(found[i], TrainerLogProbs(rows[i].ids, rows[i].files));
    }
  }

  // With the fused kernels that a GPU has, in both types. Prompts share steps.
  void ExpectGoldenInFastNumerics() {
    model::SetNumerics(model::Numerics::kFast);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(c10::toString(dtype));
      EngineOptions options = InChunks(20);
      options.dtype = dtype;
      StartCase(options);
      const std::vector<GoldenRow> rows = GoldenRows();
      const std::vector<std::vector<float>> found = ScoreAll(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        if (dtype == at::kFloat) {
          ExpectNear(found[i], rows[i].logprobs);
        } else {
          ExpectNearOnAverage(found[i], rows[i].logprobs, 0.1);
        }
      }
    }
  }

  void ExpectTrainersBitsInBfloat16() {
    EngineOptions options = InChunks(20);
    options.dtype = at::kBFloat16;
    StartCase(options);
    for (const GoldenRow& row : GoldenRows()) {
      ExpectSameBits(ScoreOf(row.ids, row.files), TrainerLogProbs(row.ids, row.files));
    }
  }

  void ExpectGreedyTokens() {
    const int64_t video = Spec().vision->video_token_id;
    for (const GoldenRow& row : GoldenRows()) {
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

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_IMAGES_FIXTURE_H_
