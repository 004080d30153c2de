// Small random models that see images, from the files of the images to log-probs, against what
// transformers computed in float32 (tests/parity/vision_golden.py). Every folder of
// tests/common/model/vision_golden is a case.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "common/model/arena.h"
#include "common/model/cache_groups.h"
#include "common/model/image_forms.h"
#include "common/model/image_places.h"
#include "common/model/images/image_preparer.h"
#include "common/model/images/prompt_images.h"
#include "common/model/load_parameters.h"
#include "common/model/packed_arena.h"
#include "common/model/packed_attention.h"
#include "common/model/paged_attention.h"
#include "common/model/stored_layout.h"
#include "common/model/stored_writer.h"
#include "common/model/transformer.h"
#include "common/model/vision_tower.h"
#include "tests/support/seen_ends.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vision_golden.h"

namespace tandem::model {
namespace {

using nlohmann::json;

struct Row {
  std::vector<int64_t> ids;
  ImagePatches images;
  ImagePlaces places;
  std::vector<double> logprobs;
};

// What the language model's layers read of a row.
struct Embedded {
  at::Tensor x;
  at::Tensor image_tokens;  // int64
  at::Tensor image_rows;    // undefined without images
};

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(testing::VisionGolden(), error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class VisionGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = testing::VisionGolden(GetParam());
    std::ifstream file(path_ + "/golden.json");
    ASSERT_TRUE(file) << path_;
    golden_ = json::parse(file);
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(path_));
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec,
                         ParseModelSpec(folder.config().json, folder.config().path));
    model_ = std::make_unique<Transformer>(spec);
    arena_ = std::make_unique<Arena>(model_->table(), at::kFloat);
    ASSERT_OK(LoadParameters(folder, *arena_));
    for (const json& row : golden_["rows"]) ASSERT_NO_FATAL_FAILURE(Read(row));
  }

  void Read(const json& golden) {
    Row row{golden["ids"], {}, {}, golden["logprobs"]};
    ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer,
                         ImagePreparer::Load(path_, *model_->spec().vision));
    std::vector<PreparedImage> images;
    const std::vector<images::ImageForm> forms =
        FormsOf(*model_->spec().vision, row.ids, golden["images"].size());
    for (const std::string name : golden["images"]) {
      ASSERT_OK_AND_ASSIGN(const std::string file, io::ReadFile(path_ + "/" + name, 1 << 20));
      const images::ImageForm form = forms[images.size()];
      ASSERT_OK_AND_ASSIGN(images.emplace_back(), preparer.Prepare(file, name, form));
    }
    std::vector<const PreparedImage*> all;
    for (const PreparedImage& image : images) all.push_back(&image);
    if (!all.empty()) row.images = PatchesOf(all);
    ASSERT_OK_AND_ASSIGN(row.places,
                         PlaceImages(*model_->spec().vision, row.ids, row.images.grids));
    rows_.push_back(std::move(row));
  }

  // The embedding of a row, with its images.
  Embedded Embed(const ParameterProvider& params, const Row& row) const {
    const at::Tensor x =
        model_->Embed(params, at::tensor(row.ids, at::kLong), PositionsOf(row.places)[0]);
    const at::Tensor tokens = at::tensor(row.places.tokens, at::kLong);
    if (row.images.grids.empty()) return {x, tokens, {}};
    const at::Tensor rows = EncodeImages(*model_, params, row.images);
    return {PutImages(x, tokens, rows), tokens, rows};
  }

  at::Tensor Layers(const ParameterProvider& params, const Embedded& in, const Rotary& rotary,
                    Attention& attention) const {
    at::Tensor x = in.x;
    for (int64_t i = 0; i < model_->spec().num_layers(); ++i) {
      x = AddImages(model_->Block(params, i, x, rotary, attention), in.image_tokens, in.image_rows,
                    i);
    }
    return x;
  }

  at::Tensor LogProbsOf(const ParameterProvider& params, const Row& row,
                        const at::Tensor& x) const {
    const at::Tensor ids = at::tensor(row.ids, at::kLong);
    const int64_t count = ids.numel() - 1;
    const at::Tensor hidden = model_->FinalNorm(params, x.narrow(0, 0, count));
    return model_->HeadLogProbs(params, hidden, ids.narrow(0, 1, count), at::ones({count}))
        .logprobs;
  }

  bool SeesAhead() const { return model_->spec().vision->images_see_ahead; }

  // What PackedAttention takes of all rows.
  at::Tensor SeenEndsOfAll() const {
    if (!SeesAhead()) return {};
    std::vector<int64_t> all;
    for (const Row& row : rows_) {
      const std::vector<int64_t> ends =
          SeenEnds(row.places.tokens, 0, static_cast<int64_t>(row.ids.size()));
      all.insert(all.end(), ends.begin(), ends.end());
    }
    return at::tensor(all, at::kLong);
  }

  // As a trainer computes them: all rows packed.
  std::vector<at::Tensor> Packed(const ParameterProvider& params) const {
    std::vector<int64_t> ends = {0};
    std::vector<at::Tensor> embedded, positions, tokens, image_rows;
    for (const Row& row : rows_) {
      const Embedded of_row = Embed(params, row);
      embedded.push_back(of_row.x);
      if (of_row.image_rows.defined()) {
        tokens.push_back(of_row.image_tokens + ends.back());
        image_rows.push_back(of_row.image_rows);
      }
      positions.push_back(PositionsOf(row.places));
      ends.push_back(ends.back() + static_cast<int64_t>(row.ids.size()));
    }
    PackedAttention attention(at::tensor(ends, at::kLong), PackedAttention::Implementation::kFast,
                              /*prefixes=*/{}, SeenEndsOfAll());
    const Rotary rotary = model_->MakeRotary(at::cat(positions, 1));
    const at::Tensor x = Layers(params, {at::cat(embedded), at::cat(tokens), at::cat(image_rows)},
                                rotary, attention);
    std::vector<at::Tensor> logprobs;
    for (size_t i = 0; i < rows_.size(); ++i) {
      logprobs.push_back(LogProbsOf(params, rows_[i], x.narrow(0, ends[i], ends[i + 1] - ends[i])));
    }
    return logprobs;
  }

  // As a rollout computes them: in chunks over a paged cache.
  at::Tensor Paged(const ParameterProvider& params, const Row& row, int64_t chunk) const {
    const ModelSpec& spec = model_->spec();
    const auto num_tokens = static_cast<int64_t>(row.ids.size());
    PagedKvCacheOptions options{.num_layers = spec.num_layers(),
                                .num_blocks = spec.num_layers() * (num_tokens / kKvTile + 1),
                                .num_kv_heads = spec.full_attention().num_kv_heads,
                                .head_dim = spec.full_attention().head_dim,
                                .windows = CacheWindows(spec, /*on_gpu=*/false)};
    if (spec.HasLinearAttention()) {
      options.states.count = 1;
      for (const LayerSpec& layer : spec.layers) {
        options.states.layers.push_back(layer.attention.delta);
      }
    }
    const PagedKvCache cache = PagedKvCache::Create(options).value();
    // Of each group of layers, of which there are at most as many as layers.
    std::vector<int32_t> blocks((num_tokens / kKvTile + 1) * cache.groups().num_groups());
    std::iota(blocks.rbegin(), blocks.rend(), 0);
    const Embedded embedded = Embed(params, row);
    const at::Tensor positions = PositionsOf(row.places);
    std::vector<at::Tensor> chunks;
    for (int64_t begin = 0, count = 0; begin < num_tokens; begin += count) {
      count = std::min(num_tokens - begin, chunk);
      std::vector<int64_t> seen_ends;
      if (SeesAhead()) {
        // A chunk does not end within an image.
        const auto ends = SeenEnds(row.places.tokens, 0, num_tokens);
        count = ends[static_cast<size_t>(begin + count - 1)] - begin;
        seen_ends.assign(ends.begin() + begin, ends.begin() + begin + count);
      }
      PagedAttention attention(cache, {{.num_tokens = count,
                                        .context_length = begin + count,
                                        .blocks = blocks.data(),
                                        .state = 0,
                                        .seen_ends = SeesAhead() ? seen_ends.data() : nullptr}});
      const Rotary rotary = model_->MakeRotary(positions.narrow(1, begin, count).contiguous());
      Embedded part{embedded.x.narrow(0, begin, count), {}, {}};
      const absl::Span<const int64_t> tokens = row.places.TokensIn(begin, begin + count);
      if (!tokens.empty()) {
        const auto first = tokens.data() - row.places.tokens.data();
        const auto size = static_cast<int64_t>(tokens.size());
        part.image_tokens = embedded.image_tokens.narrow(0, first, size) - begin;
        part.image_rows = embedded.image_rows.narrow(0, first, size);
      }
      chunks.push_back(Layers(params, part, rotary, attention));
    }
    return LogProbsOf(params, row, at::cat(chunks));
  }

  std::string path_;
  json golden_;
  std::vector<Row> rows_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Arena> arena_;
};

TEST_P(VisionGolden, LogProbsAreThoseOfTransformers) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> found = Packed(*arena_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const at::Tensor expected = at::tensor(rows_[i].logprobs, at::kDouble);
    ASSERT_EQ(found[i].numel(), expected.numel());
    EXPECT_LT((found[i].to(at::kDouble) - expected).abs().max().item<double>(), 5e-5) << i;
  }
}

TEST_P(VisionGolden, PositionsAreThoseOfTransformers) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const json& golden = golden_["rows"][i];
    for (size_t axis = 0; axis < 3; ++axis) {
      EXPECT_EQ(json(rows_[i].places.positions[axis]), golden["positions"][axis]) << i << axis;
    }
    EXPECT_EQ(rows_[i].places.next_position, golden["next_position"]) << i;
  }
}

TEST_P(VisionGolden, ARolloutGivesTheBitsOfATrainer) {
  const at::NoGradGuard no_grad;
  PackedArena packed(model_->table(), arena_->dtype());
  packed.CopyFrom(*arena_);
  const std::vector<at::Tensor> expected = Packed(*arena_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (const int64_t chunk : {int64_t{7}, int64_t{1000}}) {
      EXPECT_TRUE(at::equal(Paged(packed, rows_[i], chunk), expected[i])) << i << " by " << chunk;
    }
  }
}

TEST_P(VisionGolden, AnImageHasTheSameRowsAmongOthers) {
  const at::NoGradGuard no_grad;
  for (const Row& row : rows_) {
    if (row.images.grids.size() < 2) continue;
    std::vector<at::Tensor> alone;
    int64_t first = 0;
    for (const ImageGrid& grid : row.images.grids) {
      const at::Tensor pixels = row.images.pixel_values.narrow(0, first, grid.num_patches());
      alone.push_back(EncodeImages(*model_, *arena_, {pixels, {grid}}));
      first += grid.num_patches();
    }
    EXPECT_TRUE(at::equal(EncodeImages(*model_, *arena_, row.images), at::cat(alone)));
  }
}

TEST_P(VisionGolden, GradientsHaveTheNormsThatTransformersFinds) {
  arena_->RequireGrad();
  // Trained on request: the table says that the tower is frozen.
  for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
    arena_->Get(static_cast<int>(i)).requires_grad_(true);
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    PackedAttention attention = testing::AttentionOf(*model_->spec().vision, row.places,
                                                     static_cast<int64_t>(row.ids.size()));
    const Rotary rotary = model_->MakeRotary(PositionsOf(row.places));
    const at::Tensor x = Layers(*arena_, Embed(*arena_, row), rotary, attention);
    LogProbsOf(*arena_, row, x).mean().backward();
    double tower = 0;
    double text = 0;
    for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
      at::Tensor& gradient = arena_->Get(static_cast<int>(i)).mutable_grad();
      if (!gradient.defined()) continue;
      const double square = gradient.to(at::kDouble).square().sum().item<double>();
      (model_->table().parameter(static_cast<int>(i)).group == "vision" ? tower : text) += square;
      gradient = at::Tensor();
    }
    const json& expected = golden_["rows"][r]["grad_norms"];
    for (const auto& [found, norm] : {std::pair(tower, expected["tower"].get<double>()),
                                      std::pair(text, expected["text"].get<double>())}) {
      EXPECT_NEAR(std::sqrt(found), norm, 2e-4 * std::max(1.0, norm / 10)) << r;
    }
  }
}

TEST_P(VisionGolden, TheTowerIsFrozenAndInUnitsOfItsOwn) {
  const ParameterTable& table = model_->table();
  int num_vision = 0;
  for (const Unit& unit : table.units()) {
    const bool is_vision = table.parameter(unit.parameters.front()).group == "vision";
    num_vision += is_vision ? 1 : 0;
    EXPECT_EQ(unit.trainable, !is_vision) << unit.name;
    for (const int index : unit.parameters) {
      EXPECT_EQ(table.parameter(index).group, is_vision ? "vision" : "base") << unit.name;
    }
  }
  const VisionSpec& spec = *model_->spec().vision;
  EXPECT_EQ(num_vision, spec.num_layers() + static_cast<int>(spec.deepstack_layers.size()) + 2);
  EXPECT_EQ(table.num_stages(), model_->spec().num_layers() + 2);
  EXPECT_EQ(table.first_trainable_stage(), 0);
}

TEST_P(VisionGolden, IsExportedAsItWas) {
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(path_));
  Arena arena(model_->table(), at::kBFloat16);
  ASSERT_OK(LoadParameters(folder, arena));
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(model_->table(), &folder));
  const testing::TempFolder out;
  io::ModelFolderWriter::Options options;
  options.source_folder = path_;
  ASSERT_OK_AND_ASSIGN(
      StoredWriter writer,
      StoredWriter::Create(out / "model", layout, io::DType::kBF16, &folder, options));
  ASSERT_OK(ForStoredPieces(layout, 100, [&](const StoredPiece& piece) {
    return writer.Append(
        piece, arena.SegmentBytes(piece.parameter).subspan(piece.first * 2, piece.count * 2));
  }));
  ASSERT_OK(writer.Commit());

  ASSERT_OK_AND_ASSIGN(const io::ModelFolder written, io::ModelFolder::Open(out / "model"));
  EXPECT_EQ(written.names().size(), folder.names().size());
  for (const std::string& name : folder.names()) {
    ASSERT_OK_AND_ASSIGN(const io::TensorView before, folder.Find(name));
    ASSERT_OK_AND_ASSIGN(const io::TensorView after, written.Find(name));
    EXPECT_EQ(after.shape, before.shape) << name;
    EXPECT_TRUE(after.bytes == before.bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, VisionGolden, ::testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tandem::model
