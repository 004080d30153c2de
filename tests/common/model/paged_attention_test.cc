#include "common/model/paged_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/common/model/other_rotations.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

struct Shape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t v_head_dim = 0;  // 0: head_dim

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
};

struct Inputs {
  at::Tensor q;  // [num_tokens, num_heads, head_dim]
  at::Tensor k;  // [num_tokens, num_kv_heads, head_dim]
  at::Tensor v;
};

Inputs RandomInputs(const Shape& shape, int64_t num_tokens, uint64_t seed,
                    at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  // Views of one fused tensor, as the projection gives them.
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t k = shape.num_kv_heads * shape.head_dim;
  const int64_t v = shape.num_kv_heads * shape.value_dim();
  const at::Tensor fused = at::randn({num_tokens, q + k + v}, generator, at::kFloat).to(dtype);
  return {fused.narrow(1, 0, q).unflatten(1, {shape.num_heads, shape.head_dim}),
          fused.narrow(1, q, k).unflatten(1, {shape.num_kv_heads, shape.head_dim}),
          fused.narrow(1, q + k, v).unflatten(1, {shape.num_kv_heads, shape.value_dim()})};
}

// One sequence, one token after the other, in float64.
at::Tensor Reference(const Inputs& in, const AttentionParams& params) {
  const at::Tensor q = in.q.to(at::kDouble).contiguous();
  const at::Tensor k = in.k.to(at::kDouble).contiguous();
  const at::Tensor v = in.v.to(at::kDouble).contiguous();
  const int64_t n = q.size(0), heads = q.size(1), dim = q.size(2), group = heads / k.size(1);
  const int64_t value_dim = v.size(2);
  at::Tensor out = at::zeros({n, heads * value_dim}, at::kDouble);
  const auto qa = q.accessor<double, 3>(), ka = k.accessor<double, 3>(),
             va = v.accessor<double, 3>();
  auto oa = out.accessor<double, 2>();
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t size = params.window.size;
      const int64_t first = size == 0               ? 0
                            : params.window.chunked ? t - t % size
                                                    : std::max<int64_t>(0, t + 1 - size);
      std::vector<double> p;
      double sum = params.sinks.has_value() ? std::exp((*params.sinks)[h].item<double>()) : 0.0;
      for (int64_t j = first; j <= t; ++j) {
        double score = 0.0;
        for (int64_t i = 0; i < dim; ++i) score += qa[t][h][i] * ka[j][h / group][i];
        score *= params.scale;
        if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
        p.push_back(std::exp(score));
        sum += p.back();
      }
      for (int64_t j = first; j <= t; ++j) {
        for (int64_t i = 0; i < value_dim; ++i) {
          oa[t][h * value_dim + i] += p[j - first] / sum * va[j][h / group][i];
        }
      }
    }
  }
  return out;
}

class PagedAttentionTest : public ::testing::Test {
 protected:
  void MakeCache(const Shape& shape, at::ScalarType dtype = at::kFloat, int64_t block_size = 16) {
    ASSERT_OK_AND_ASSIGN(PagedKvCache cache,
                         PagedKvCache::Create({.num_layers = 1,
                                               .num_blocks = 64,
                                               .block_size = block_size,
                                               .num_kv_heads = shape.num_kv_heads,
                                               .head_dim = shape.head_dim,
                                               .v_head_dim = shape.v_head_dim,
                                               .dtype = dtype}));
    cache_ = std::make_unique<PagedKvCache>(std::move(cache));
    // What was there before must not matter.
    for (const at::Tensor& t : {cache_->keys(0), cache_->values(0)}) {
      t.fill_(std::numeric_limits<float>::quiet_NaN());
    }
  }

  // Feeds a sequence in chunks of `chunk` tokens and returns all rows.
  at::Tensor InChunks(const Inputs& in, int64_t chunk, const std::vector<int32_t>& blocks,
                      const AttentionParams& params) {
    std::vector<at::Tensor> rows;
    const int64_t n = in.q.size(0);
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t count = std::min(chunk, n - begin);
      PagedAttention attention(*cache_, {{.first_token = 0,
                                          .num_tokens = count,
                                          .context_length = begin + count,
                                          .blocks = blocks.data()}});
      rows.push_back(attention.Forward(0, in.q.narrow(0, begin, count),
                                       in.k.narrow(0, begin, count), in.v.narrow(0, begin, count),
                                       params));
    }
    return at::cat(rows);
  }

  std::unique_ptr<PagedKvCache> cache_;
};

std::vector<int32_t> Blocks(int32_t count, int32_t first = 0, int32_t stride = 1) {
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i < count; ++i) blocks.push_back(first + i * stride);
  return blocks;
}

AttentionParams Params(int64_t head_dim) {
  return {.scale = 1.0 / std::sqrt(static_cast<double>(head_dim))};
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST_F(PagedAttentionTest, AgreesWithAPlainLoop) {
  for (const Shape& shape : {Shape{4, 4, 64}, Shape{8, 2, 64}, Shape{14, 2, 32}, Shape{6, 2, 12},
                             Shape{3, 1, 80}, Shape{5, 5, 7}, Shape{40, 1, 16}, Shape{4, 4, 24, 10},
                             Shape{6, 2, 12, 40}, Shape{5, 5, 7, 16}}) {
    MakeCache(shape);
    const Inputs in = RandomInputs(shape, 150, 1);
    const at::Tensor out = InChunks(in, 150, Blocks(10, 50, -3), Params(shape.head_dim));
    EXPECT_LT(Difference(out, Reference(in, Params(shape.head_dim))), 2e-6) << shape.head_dim;
  }
}

TEST_F(PagedAttentionTest, HonoursScaleSoftcapWindowAndSinks) {
  const Shape shape{4, 2, 24};
  MakeCache(shape);
  const Inputs in = RandomInputs(shape, 300, 2);
  for (const Window& window : {Window(37), Window(37, /*in_chunks=*/true), Window(128, true)}) {
    AttentionParams params{.scale = 0.9, .softcap = 2.0, .window = window};
    EXPECT_LT(Difference(InChunks(in, 300, Blocks(19), params), Reference(in, params)), 5e-6);
    params.sinks = at::randn({4}, at::make_generator<at::CPUGeneratorImpl>(3), at::kFloat);
    EXPECT_LT(Difference(InChunks(in, 1, Blocks(19), params), Reference(in, params)), 5e-6);
  }
}

TEST_F(PagedAttentionTest, ARowIsTheSameBitForBitHoweverThePromptIsCut) {
  const Shape shape{6, 2, 40};
  MakeCache(shape);
  const Inputs in = RandomInputs(shape, 290, 4);
  const at::Tensor whole = InChunks(in, 290, Blocks(19), Params(40));
  for (const int64_t chunk : {1, 5, 16, 64, 131}) {
    EXPECT_TRUE(InChunks(in, chunk, Blocks(19, 20), Params(40)).equal(whole)) << chunk;
  }
}

TEST_F(PagedAttentionTest, ARowIsTheSameBitForBitWhateverSharesTheBatch) {
  const Shape shape{4, 2, 32};
  MakeCache(shape);
  // A sequence that decodes its token 100, and prompts of other lengths.
  const Inputs in = RandomInputs(shape, 101, 5);
  const std::vector<int32_t> blocks = Blocks(7);
  const at::Tensor alone = InChunks(in, 1, blocks, Params(32)).narrow(0, 100, 1);
  const Inputs other = RandomInputs(shape, 61, 6);
  const std::vector<int32_t> blocks_a = Blocks(2, 20), blocks_b = Blocks(3, 30);
  const auto joined = [&](const at::Tensor& mine, const at::Tensor& theirs) {
    return at::cat({theirs.narrow(0, 0, 20), mine.narrow(0, 100, 1), theirs.narrow(0, 20, 41)});
  };
  PagedAttention attention(
      *cache_,
      {{0, 20, 20, blocks_a.data()}, {20, 1, 101, blocks.data()}, {21, 41, 41, blocks_b.data()}});
  const at::Tensor out = attention.Forward(0, joined(in.q, other.q), joined(in.k, other.k),
                                           joined(in.v, other.v), Params(32));
  EXPECT_TRUE(out.narrow(0, 20, 1).equal(alone));
}

TEST_F(PagedAttentionTest, ThreadsDoNotChangeTheResult) {
  const Shape shape{8, 4, 64};
  MakeCache(shape);
  const Inputs in = RandomInputs(shape, 200, 7);
  const at::Tensor many = InChunks(in, 200, Blocks(13), Params(64));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = InChunks(in, 200, Blocks(13), Params(64));
  at::set_num_threads(threads);
  EXPECT_TRUE(many.equal(one));
}

TEST_F(PagedAttentionTest, BFloat16IsRoundedOnceAtTheEnd) {
  const Shape shape{4, 2, 64};
  MakeCache(shape, at::kBFloat16);
  const Inputs in = RandomInputs(shape, 80, 8, at::kBFloat16);
  const at::Tensor out = InChunks(in, 33, Blocks(5), Params(64));
  ASSERT_EQ(out.scalar_type(), at::kBFloat16);
  const at::Tensor reference = Reference(in, Params(64));
  EXPECT_LT(Difference(out, reference), 0.008 * reference.abs().max().item<double>());
}

TEST_F(PagedAttentionTest, LargerBlocksGiveTheSameBits) {
  const Shape shape{4, 2, 20};
  const Inputs in = RandomInputs(shape, 140, 9);
  MakeCache(shape);
  const at::Tensor small = InChunks(in, 11, Blocks(9, 3), Params(20));
  MakeCache(shape, at::kFloat, /*block_size=*/48);
  EXPECT_TRUE(InChunks(in, 11, Blocks(3, 5), Params(20)).equal(small));
}

TEST_F(PagedAttentionTest, ACopiedBlockHoldsTheSame) {
  const Shape shape{2, 1, 16};
  MakeCache(shape);
  const Inputs in = RandomInputs(shape, 20, 10);
  InChunks(in, 20, Blocks(2), Params(16));
  cache_->CopyBlock(0, 9);
  cache_->CopyBlock(1, 4);
  const std::vector<int32_t> original = {0, 1}, copied = {9, 4};
  const Inputs next = RandomInputs(shape, 1, 11);
  PagedAttention on_copy(*cache_, {{0, 1, 21, copied.data()}});
  const at::Tensor a = on_copy.Forward(0, next.q, next.k, next.v, Params(16));
  PagedAttention on_original(*cache_, {{0, 1, 21, original.data()}});
  EXPECT_TRUE(on_original.Forward(0, next.q, next.k, next.v, Params(16)).equal(a));
}

TEST_F(PagedAttentionTest, BlocksThatHaveLeftTheWindowAreNotRead) {
  const Shape shape{6, 2, 24};
  for (const Window& window :
       {Window(1), Window(16), Window(37), Window(130), Window(1, true), Window(16, true),
        Window(37, true), Window(64, true), Window(130, true)}) {
    const AttentionParams params{.scale = 0.9, .softcap = 2.0, .window = window};
    const Inputs in = RandomInputs(shape, 300, 21);
    MakeCache(shape);
    const at::Tensor whole = InChunks(in, 300, Blocks(19), params);
    for (const int64_t chunk : {1, 7, 64}) {
      MakeCache(shape);
      std::vector<int32_t> blocks = Blocks(19, 3, 2);
      for (int64_t begin = 0; begin < 300; begin += chunk) {
        for (int64_t i = 0; i < FirstBlockInUse(window, begin, 16); ++i) {
          if (blocks[i] == kNoBlock) continue;
          for (const at::Tensor& t : {cache_->keys(0), cache_->values(0)}) {
            t[blocks[i]].fill_(std::numeric_limits<float>::quiet_NaN());
          }
          blocks[i] = kNoBlock;
        }
        const int64_t count = std::min<int64_t>(chunk, 300 - begin);
        PagedAttention attention(*cache_, {{0, count, begin + count, blocks.data()}});
        const at::Tensor out =
            attention.Forward(0, in.q.narrow(0, begin, count), in.k.narrow(0, begin, count),
                              in.v.narrow(0, begin, count), params);
        ASSERT_TRUE(out.equal(whole.narrow(0, begin, count)))
            << "window " << window.size << ", token " << begin << ", chunks of " << chunk;
      }
    }
  }
}

TEST_F(PagedAttentionTest, LayersOfDifferentWindowsHaveBlocksOfTheirOwn) {
  const Shape shape{4, 2, 20};
  const PagedKvCacheOptions one_layer{
      .num_layers = 1, .num_blocks = 20, .num_kv_heads = 2, .head_dim = 20};
  PagedKvCacheOptions options = one_layer;
  options.num_layers = 2;
  options.windows = {0, 37};
  EXPECT_EQ(PagedKvCache::BytesPerBlock(options), PagedKvCache::BytesPerBlock(one_layer));
  ASSERT_OK_AND_ASSIGN(PagedKvCache cache, PagedKvCache::Create(options));
  AttentionParams windowed = Params(20);
  windowed.window = 37;
  const Inputs full_in = RandomInputs(shape, 100, 22);
  const Inputs windowed_in = RandomInputs(shape, 100, 23);
  MakeCache(shape);
  const at::Tensor full = InChunks(full_in, 100, Blocks(7), Params(20));
  MakeCache(shape);
  const at::Tensor of_window = InChunks(windowed_in, 100, Blocks(7), windowed);

  // At each position a block for the first group and one for the second.
  const std::vector<int32_t> table = Blocks(14, 5);
  PagedAttention attention(cache, {{0, 100, 100, table.data()}});
  EXPECT_TRUE(attention.Forward(0, full_in.q, full_in.k, full_in.v, Params(20)).equal(full));
  EXPECT_TRUE(
      attention.Forward(1, windowed_in.q, windowed_in.k, windowed_in.v, windowed).equal(of_window));
}

// A block holds two layers with one key-value head or one with two.
PagedKvCacheOptions LayersThatDiffer() {
  const CacheSpec small{.num_kv_heads = 1, .head_dim = 20, .v_head_dim = 20};
  const CacheSpec large{.num_kv_heads = 2, .head_dim = 24, .v_head_dim = 10};
  return {.num_layers = 3,
          .num_blocks = 20,
          .windows = {0, 37, 0},
          .layers = {small, large, small},
          .sizes = {52, 80, 52}};
}

TEST_F(PagedAttentionTest, LayersOfDifferentSizesShareBlocksOfOneSize) {
  const PagedKvCacheOptions options = LayersThatDiffer();
  EXPECT_EQ(PagedKvCache::BytesPerBlock(options), 2 * 16 * 52 * 4) << "values are padded to 32";
  ASSERT_OK_AND_ASSIGN(PagedKvCache cache, PagedKvCache::Create(options));
  EXPECT_THAT(cache.groups().windows, ::testing::ElementsAre(0, 37));
  const Shape small{4, 1, 20}, large{4, 2, 24, 10};
  AttentionParams windowed = Params(24);
  windowed.window = 37;
  std::vector<Inputs> in;
  std::vector<at::Tensor> expected;
  for (int64_t layer = 0; layer < 3; ++layer) {
    const Shape& shape = layer == 1 ? large : small;
    in.push_back(RandomInputs(shape, 100, 60 + layer));
    MakeCache(shape);
    expected.push_back(InChunks(in[layer], 100, Blocks(7), layer == 1 ? windowed : Params(20)));
  }
  // At each position a block for the first group and one for the second. A token of each layer at a time:
  // none writes over another's.
  std::vector<int32_t> table = Blocks(14, 5);
  for (int64_t begin = 0, count = 0; begin < 100; begin += count) {
    count = std::min<int64_t>(begin % 3 == 0 ? 1 : 9, 100 - begin);
    PagedAttention attention(cache, {{0, count, begin + count, table.data()}});
    for (int64_t layer = 0; layer < 3; ++layer) {
      const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, count); };
      const at::Tensor out =
          attention.Forward(layer, rows(in[layer].q), rows(in[layer].k), rows(in[layer].v),
                            layer == 1 ? windowed : Params(20));
      ASSERT_TRUE(out.equal(rows(expected[layer]))) << "layer " << layer << ", token " << begin;
    }
  }
  // A copy of a block has what all its layers have.
  cache.CopyBlock(table[0], 0);
  for (const int64_t layer : {0, 2}) {
    EXPECT_TRUE(cache.keys(layer)[0].equal(cache.keys(layer)[table[0]]));
    EXPECT_TRUE(cache.values(layer)[0].equal(cache.values(layer)[table[0]]));
  }
}

TEST(PagedKvCacheTest, RefusesLayersThatItCannotHold) {
  const auto refusal = [](const PagedKvCacheOptions& options) {
    return PagedKvCache::Create(options).status();
  };
  PagedKvCacheOptions options = LayersThatDiffer();
  options.layers.pop_back();
  EXPECT_THAT(refusal(options), testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                  ::testing::HasSubstr("3 layers")));
  options = LayersThatDiffer();
  options.layers[1].num_kv_heads = 0;
  EXPECT_THAT(refusal(options), testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                  ::testing::HasSubstr("layer 1")));
  options = LayersThatDiffer();
  options.layers[2].shared = true;
  EXPECT_THAT(refusal(options), testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                  ::testing::HasSubstr("layer 2")));
  options = LayersThatDiffer();
  options.device = at::Device(at::kCUDA, 0);
  // There a block has all layers, whatever their sizes.
  EXPECT_THAT(refusal(options), testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                  ::testing::HasSubstr("0 sizes on cuda:0")));
}

TEST(PagedKvCacheTest, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(
      PagedKvCache::Create(
          {.num_layers = 2, .num_blocks = 4, .num_kv_heads = 1, .head_dim = 8, .windows = {4}})
          .status(),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        ::testing::HasSubstr("windows of 2 layers")));
  EXPECT_THAT(
      PagedKvCache::Create(
          {.num_layers = 1, .num_blocks = 4, .block_size = 12, .num_kv_heads = 1, .head_dim = 8})
          .status(),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("block_size")));
  EXPECT_THAT(
      PagedKvCache::Create(
          {.num_layers = 1, .num_blocks = 4, .num_kv_heads = 1, .head_dim = 8, .dtype = at::kHalf})
          .status(),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("dtype")));
}

TEST_F(PagedAttentionTest, OfAProjectionIsThatOfItsRotatedHeads) {
  at::manual_seed(17);
  const int64_t n = 75;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Shape& shape :
         {Shape{8, 2, 64}, Shape{6, 2, 12}, Shape{40, 1, 16}, Shape{6, 2, 12, 20}}) {
      for (const auto& [has_norms, norms_values] :
           {std::pair(false, false), {true, false}, {true, true}}) {
        const int64_t width = (shape.num_heads + shape.num_kv_heads) * shape.head_dim +
                              shape.num_kv_heads * shape.value_dim();
        const at::Tensor qkv = at::randn({n, width}).to(dtype);
        const at::Tensor positions = at::arange(n, at::kLong);
        HeadRotation rotation{
            .angles = AnglesOf(positions, at::rand({shape.head_dim / 2})),
            .shape = {shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.v_head_dim}};
        if (has_norms) {
          rotation.norm.emplace();
          rotation.q_norm.weight = at::rand({shape.head_dim}).to(dtype);
          rotation.k_norm.weight = at::rand({shape.head_dim}).to(dtype);
        }
        if (norms_values) rotation.value_norm = NormSpec{.weight = false};
        const Qkv heads = RotateQkv(qkv, rotation);
        const std::vector<int32_t> blocks = Blocks(5, 2, 3);
        MakeCache(shape, dtype);
        const at::Tensor expected =
            InChunks({heads.q, heads.k, heads.v}, n, blocks, Params(shape.head_dim));
        const at::Tensor keys = cache_->keys(0).clone();
        const at::Tensor values = cache_->values(0).clone();
        for (const int64_t chunk : {n, int64_t{20}, int64_t{1}}) {
          MakeCache(shape, dtype);
          std::vector<at::Tensor> rows;
          for (int64_t begin = 0; begin < n; begin += chunk) {
            const int64_t count = std::min(chunk, n - begin);
            const HeadRotation part = RowsOf(rotation, begin, count);
            PagedAttention attention(*cache_, {{.first_token = 0,
                                                .num_tokens = count,
                                                .context_length = begin + count,
                                                .blocks = blocks.data()}});
            rows.push_back(attention.ForwardProjected(0, qkv.narrow(0, begin, count), part,
                                                      Params(shape.head_dim)));
          }
          EXPECT_TRUE(at::equal(at::cat(rows), expected)) << dtype << " chunks of " << chunk;
          // Where nothing was written both are NaN.
          EXPECT_TRUE(at::allclose(cache_->keys(0), keys, 0, 0, /*equal_nan=*/true));
          EXPECT_TRUE(at::allclose(cache_->values(0), values, 0, 0, /*equal_nan=*/true));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::model
