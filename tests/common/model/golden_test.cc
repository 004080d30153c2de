// Small random checkpoints of every family, against what transformers computed on them in float32
// (tests/parity/model_golden.py): log-probs, entropies, and gradients of a loss of both. Every
// folder of tests/common/model/golden is a case.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/io/model_folder.h"
#include "common/model/arena.h"
#include "common/model/load_parameters.h"
#include "common/model/model_cache.h"
#include "common/model/packed_arena.h"
#include "common/model/packed_attention.h"
#include "common/model/paged_attention.h"
#include "common/model/stored_layout.h"
#include "common/model/stored_view.h"
#include "common/model/stored_writer.h"
#include "common/model/torch_dtype.h"
#include "common/model/transformer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::model {
namespace {

using nlohmann::json;

struct Batch {
  std::vector<int64_t> ids;
  std::vector<int64_t> cu_seqlens = {0};
  std::vector<int64_t> rows;  // tokens that have a successor
  std::vector<int64_t> targets;
  std::vector<double> logprobs;
  std::vector<double> entropies;
};

Batch Pack(const json& golden) {
  Batch batch;
  for (size_t s = 0; s < golden["sequences"].size(); ++s) {
    const std::vector<int64_t> ids = golden["sequences"][s];
    for (size_t t = 0; t < ids.size(); ++t) {
      if (t + 1 < ids.size()) {
        batch.rows.push_back(static_cast<int64_t>(batch.ids.size()));
        batch.targets.push_back(ids[t + 1]);
      }
      batch.ids.push_back(ids[t]);
    }
    batch.cu_seqlens.push_back(static_cast<int64_t>(batch.ids.size()));
    for (double x : golden["logprobs"][s]) batch.logprobs.push_back(x);
    for (double x : golden["entropies"][s]) batch.entropies.push_back(x);
  }
  return batch;
}

std::filesystem::path GoldenFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests/common/model/golden";
}

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder(), error)) {
    if (std::filesystem::exists(entry.path() / "config.json")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = (GoldenFolder() / GetParam()).string();
    std::ifstream file(path + "/golden.json");
    ASSERT_TRUE(file) << path;
    golden_ = json::parse(file);
    batch_ = Pack(golden_);
    ASSERT_OK_AND_ASSIGN(io::ModelFolder folder, io::ModelFolder::Open(path));
    folder_ = std::make_unique<io::ModelFolder>(std::move(folder));
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec,
                         ParseModelSpec(folder_->config().json, folder_->config().path));
    model_ = std::make_unique<Transformer>(spec);
    arena_ = std::make_unique<Arena>(model_->table(), at::kFloat);
    ASSERT_OK(LoadParameters(*folder_, *arena_));
  }

  LogProbs Forward(const ParameterProvider& params,
                   PackedAttention::Implementation implementation =
                       PackedAttention::Implementation::kFast) const {
    const at::Tensor cu_seqlens = at::tensor(batch_.cu_seqlens, at::kLong);
    PackedAttention attention(cu_seqlens, implementation);
    const at::Tensor positions = PackedPositions(cu_seqlens);
    const Rotary rotary = model_->MakeRotary(positions, PackedLengths(cu_seqlens));
    const at::Tensor x =
        model_->Blocks(params, at::tensor(batch_.ids, at::kLong), positions, rotary, attention);
    const at::Tensor hidden =
        model_->FinalNorm(params, x.index_select(0, at::tensor(batch_.rows, at::kLong)));
    return model_->HeadLogProbs(params, hidden, at::tensor(batch_.targets, at::kLong),
                                at::ones({hidden.size(0)}));
  }

  static void ExpectNear(const at::Tensor& found, const std::vector<double>& expected,
                         double tolerance) {
    ASSERT_EQ(found.numel(), static_cast<int64_t>(expected.size()));
    const at::Tensor difference = (found.to(at::kDouble) - at::tensor(expected, at::kDouble)).abs();
    EXPECT_LT(difference.max().item<double>(), tolerance);
  }

  bool IsTrainable(int index) const { return model_->table().parameter(index).trainable; }

  // Zeros for an expert that no token reached, which has none.
  at::Tensor GradientOf(int index) const {
    const at::Tensor& parameter = arena_->Get(index);
    const std::string& name = model_->table().parameter(index).name;
    const bool is_expert = name.find(".experts.") != std::string::npos;
    EXPECT_TRUE(is_expert || !IsTrainable(index) || parameter.grad().defined()) << name;
    return parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter);
  }

  // The gradients in a tensor of the folder, with its layout.
  at::Tensor StoredGradient(const StoredLayout& layout, const StoredTensor& tensor) const {
    at::Tensor stored = at::zeros({NumElements(tensor.shape)}, at::kFloat);
    for (const StoredTensor::Part& part : tensor.parts) {
      const ParameterTable::SegmentRef ref = model_->table().segments()[part.parameter];
      const Segment& segment = model_->table().segment(ref);
      const at::Tensor gradient =
          GradientOf(ref.parameter).narrow(0, segment.row, segment.shape[0]).flatten().contiguous();
      const StoredView& view = layout.ViewsOf(part.parameter)[part.view];
      ScatterElements(
          view, view.first, view.numel(), sizeof(float),
          reinterpret_cast<const std::byte*>(gradient.const_data_ptr<float>() + view.first),
          reinterpret_cast<std::byte*>(stored.mutable_data_ptr<float>()));
    }
    return stored.to(at::kDouble);
  }

  json golden_;
  Batch batch_;
  std::unique_ptr<io::ModelFolder> folder_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Arena> arena_;
};

TEST_P(Golden, LogProbsAndEntropiesAreThoseOfTransformers) {
  const at::NoGradGuard no_grad;
  const LogProbs out = Forward(*arena_);
  ExpectNear(out.logprobs, batch_.logprobs, 2e-5);
  ExpectNear(out.entropy, batch_.entropies, 2e-5);
}

// A rollout's cache in fast numerics, of latents or of layers that differ: each sequence in chunks, with
// packed weights.
TEST_P(Golden, ACacheOfTheRolloutsOwnGivesThem) {
  ASSERT_OK_AND_ASSIGN(PagedKvCacheOptions options,
                       CacheOfModel(model_->spec(), {}, LatentCache::kLatents, at::kCPU));
  if (!options.shared && options.layers.empty()) return;
  const at::NoGradGuard no_grad;
  PackedArena packed(model_->table(), arena_->dtype());
  packed.CopyFrom(*arena_);
  options.num_blocks = 12;
  ASSERT_OK_AND_ASSIGN(const PagedKvCache cache, PagedKvCache::Create(options));
  const std::vector<int32_t> blocks = {2, 0, 9, 3, 1, 7, 4, 11, 5, 10, 6, 8};
  std::vector<at::Tensor> rows;
  for (size_t s = 0; s + 1 < batch_.cu_seqlens.size(); ++s) {
    const int64_t first = batch_.cu_seqlens[s];
    const int64_t length = batch_.cu_seqlens[s + 1] - first;
    for (int64_t begin = 0, count = 0; begin < length; begin += count) {
      count = std::min(length - begin, 1 + begin % 7);
      PagedAttention attention(
          cache, {{.num_tokens = count, .context_length = begin + count, .blocks = blocks.data()}});
      const at::Tensor positions = at::arange(begin, begin + count, at::kLong);
      const Rotary rotary = model_->MakeRotary(positions);
      rows.push_back(
          model_->Blocks(packed, at::tensor(batch_.ids, at::kLong).narrow(0, first + begin, count),
                         positions, rotary, attention));
    }
  }
  const at::Tensor hidden =
      model_->FinalNorm(packed, at::cat(rows).index_select(0, at::tensor(batch_.rows, at::kLong)));
  const LogProbs out = model_->HeadLogProbs(packed, hidden, at::tensor(batch_.targets, at::kLong),
                                            at::ones({hidden.size(0)}));
  ExpectNear(out.logprobs, batch_.logprobs, 2e-5);
}

TEST_P(Golden, PackedWeightsGiveTheSameBits) {
  const at::NoGradGuard no_grad;
  PackedArena packed(model_->table(), arena_->dtype());
  packed.CopyFrom(*arena_);
  EXPECT_TRUE(at::equal(Forward(*arena_).logprobs, Forward(packed).logprobs));
  PackedArena plain(model_->table(), arena_->dtype(), /*packs=*/false);
  plain.CopyFrom(*arena_);
  EXPECT_TRUE(at::equal(Forward(*arena_).logprobs, Forward(plain).logprobs));
}

// The parts of every tensor, of any size and in any order, over what was there before; and what was
// written is read back.
TEST_P(Golden, WeightsThatArriveInPartsArePackedAsTheyCome) {
  const at::NoGradGuard no_grad;
  std::mt19937 random(5);
  struct Part {
    size_t segment;
    int64_t offset;
    int64_t size;
  };
  const auto element = static_cast<int64_t>(c10::elementSize(arena_->dtype()));
  std::vector<Part> parts;
  for (size_t i = 0; i < model_->table().segments().size(); ++i) {
    const auto bytes = static_cast<int64_t>(arena_->SegmentBytes(i).size());
    for (int64_t offset = 0; offset < bytes;) {
      const auto size = std::min<int64_t>(bytes - offset, element * (1 + random() % 3000));
      parts.push_back({i, offset, size});
      offset += size;
    }
  }
  PackedArena packed(model_->table(), arena_->dtype());
  const LogProbs plain = Forward(*arena_);
  for (int round = 0; round < 2; ++round) {
    std::shuffle(parts.begin(), parts.end(), random);
    for (const Part& part : parts) {
      const auto from = arena_->SegmentBytes(part.segment).subspan(part.offset, part.size);
      if (const auto to = packed.SegmentBytes(part.segment); to.empty()) {
        packed.Write(part.segment, part.offset, from);
      } else {
        std::memcpy(to.data() + part.offset, from.data(), from.size());
        packed.Pack(part.segment, part.offset, part.size);
      }
    }
    EXPECT_TRUE(at::equal(plain.logprobs, Forward(packed).logprobs));
    Arena read(model_->table(), arena_->dtype());
    packed.CopyTo(read);
    for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(read.Get(static_cast<int>(i)), arena_->Get(static_cast<int>(i)))) << i;
    }
    for (size_t i = 0; i < model_->table().segments().size(); ++i)
      arena_->SegmentTensor(i).mul_(0.5);
    packed.CopyFrom(*arena_);
    for (size_t i = 0; i < model_->table().segments().size(); ++i)
      arena_->SegmentTensor(i).mul_(2.0);
  }
  int num_packed = 0;
  for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
    num_packed += packed.Packed(static_cast<int>(i)) != nullptr ? 1 : 0;
  }
  EXPECT_GE(num_packed, 4 * model_->spec().num_layers());
}

TEST_P(Golden, BFloat16StaysClose) {
  const at::NoGradGuard no_grad;
  Arena half(model_->table(), at::kBFloat16);
  for (size_t i = 0; i < model_->table().segments().size(); ++i) {
    half.SegmentTensor(i).copy_(arena_->SegmentTensor(i));
  }
  const at::Tensor difference =
      Forward(half).logprobs.to(at::kDouble) - at::tensor(batch_.logprobs, at::kDouble);
  EXPECT_LT(difference.abs().max().item<double>(), 0.5);
  EXPECT_LT(difference.abs().mean().item<double>(), 0.05);
}

TEST_P(Golden, GradientsAreThoseOfTransformers) {
  arena_->RequireGrad();
  const at::AutoGradMode grad(true);
  const LogProbs out = Forward(*arena_);
  (out.logprobs.mean() + 0.1 * out.entropy.mean()).backward();
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(model_->table(), folder_.get()));
  size_t compared = 0;
  for (const StoredTensor& tensor : layout.tensors()) {
    const size_t first = tensor.parts.front().parameter;
    if (!IsTrainable(model_->table().segments()[first].parameter)) continue;
    ASSERT_TRUE(golden_["gradients"].contains(tensor.name)) << tensor.name;
    const json& expected = golden_["gradients"][tensor.name];
    const at::Tensor found = StoredGradient(layout, tensor);
    const double size = std::sqrt(expected[1].get<double>());
    EXPECT_NEAR(found.sum().item<double>(), expected[0].get<double>(), 1e-4 * (size + 1e-3))
        << tensor.name;
    EXPECT_NEAR(found.norm().item<double>(), size, 1e-4 * (size + 1e-3)) << tensor.name;
    for (size_t i = 0; i < expected[2].size(); ++i) {
      EXPECT_NEAR(found[static_cast<int64_t>(i)].item<double>(), expected[2][i].get<double>(),
                  1e-4 * (size + 1e-3))
          << tensor.name << " element " << i;
    }
    ++compared;
  }
  EXPECT_EQ(compared, golden_["gradients"].size());
}

// A view of the file's bytes.
at::Tensor TensorOf(const io::TensorView& view) {
  return at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape,
                       TorchDType(view.dtype).value());
}

TEST_P(Golden, IsExportedAsItWas) {
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(model_->table(), folder_.get()));
  if (layout.quantization() != nullptr) GTEST_SKIP() << "an export is not quantised";
  ASSERT_OK_AND_ASSIGN(const io::TensorView first, folder_->Find(layout.tensors()[0].name));
  Arena arena(model_->table(), TorchDType(first.dtype).value());
  ASSERT_OK(LoadParameters(*folder_, arena));
  const tandem::testing::TempFolder out;
  io::ModelFolderWriter::Options options;
  options.source_folder = folder_->path();
  ASSERT_OK_AND_ASSIGN(StoredWriter writer, StoredWriter::Create(out / "model", layout, first.dtype,
                                                                 folder_.get(), options));
  ASSERT_OK(ForStoredPieces(layout, 100, [&](const StoredPiece& piece) {
    const int64_t size = io::SizeOf(layout.DTypeOf(*piece.tensor, first.dtype));
    return writer.Append(
        piece, arena.SegmentBytes(piece.parameter).subspan(piece.first * size, piece.count * size));
  }));
  ASSERT_OK(writer.Commit());
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder written, io::ModelFolder::Open(out / "model"));
  std::set<std::string> float32;
  for (const StoredTensor& tensor : layout.tensors()) {
    if (layout.DTypeOf(tensor, io::DType::kBF16) == io::DType::kF32) float32.insert(tensor.name);
  }
  size_t compared = 0;
  for (const std::string& name : folder_->names()) {
    if (layout.Ignores(name) && !written.Contains(name)) continue;  // constants are written
    ASSERT_OK_AND_ASSIGN(const io::TensorView before, folder_->Find(name));
    ASSERT_OK_AND_ASSIGN(const io::TensorView after, written.Find(name));
    EXPECT_EQ(after.shape, before.shape) << name;
    if (float32.contains(name)) {  // whatever the folder has
      EXPECT_EQ(after.dtype, io::DType::kF32) << name;
      EXPECT_TRUE(at::equal(TensorOf(after), TensorOf(before).to(at::kFloat))) << name;
    } else {
      EXPECT_EQ(after.dtype, before.dtype) << name;
      EXPECT_TRUE(after.bytes == before.bytes) << name;
    }
    ++compared;
  }
  EXPECT_EQ(written.names().size(), compared);
}

// A rank without samples takes part in every step all the same.
TEST_P(Golden, ABatchWithoutTokensHasGradientsOfZero) {
  batch_ = Batch();
  arena_->RequireGrad();
  const at::AutoGradMode grad(true);
  const LogProbs out = Forward(*arena_);
  ASSERT_EQ(out.logprobs.numel(), 0);
  (out.logprobs.sum() + out.entropy.sum()).backward();
  for (size_t i = 0; i < model_->table().parameters().size(); ++i) {
    EXPECT_EQ(GradientOf(static_cast<int>(i)).count_nonzero().item<int64_t>(), 0);
  }
}

TEST(GoldenFolders, AreFound) {
  EXPECT_FALSE(Cases().empty()) << GoldenFolder()
                                << ": set TANDEM_SOURCE to the root of the checkout";
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Golden, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem::model
