// Paged attention on a GPU, by FlashInfer's kernel, the one over latents and the plain one, against the
// CPU's.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "common/model/device_attention.h"
#include "common/model/paged_attention.h"
#include "tests/support/cuda_device.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kBlockSize = 16;
constexpr int64_t kNumBlocks = 600;

struct Shape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t v_head_dim = 0;  // 0: head_dim
  bool shared = false;     // latents

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
};

struct Inputs {
  at::Tensor q, k, v;
  Inputs To(at::Device device) const { return {q.to(device), k.to(device), v.to(device)}; }
};

// A cache on each side, and sequences that grow in both.
class CudaAttention : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }

  void Make(const Shape& shape, at::ScalarType dtype) {
    shape_ = shape;
    dtype_ = dtype;
    PagedKvCacheOptions options{.num_layers = 2,
                                .num_blocks = kNumBlocks,
                                .block_size = kBlockSize,
                                .num_kv_heads = shape.num_kv_heads,
                                .head_dim = shape.head_dim,
                                .v_head_dim = shape.v_head_dim,
                                .shared = shape.shared,
                                .dtype = dtype};
    ASSERT_OK_AND_ASSIGN(PagedKvCache here, PagedKvCache::Create(options));
    options.device = kGpu;
    ASSERT_OK_AND_ASSIGN(PagedKvCache there, PagedKvCache::Create(options));
    attention_.reset();
    here_ = std::make_unique<PagedKvCache>(std::move(here));
    there_ = std::make_unique<PagedKvCache>(std::move(there));
    for (const PagedKvCache* cache : {here_.get(), there_.get()}) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        // What was there before must not matter.
        cache->keys(layer).fill_(NAN);
        cache->values(layer).fill_(NAN);
      }
    }
    ASSERT_OK_AND_ASSIGN(attention_, CreateCudaAttention(*there_, shape.num_heads));
    free_blocks_.resize(kNumBlocks);
    std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
    std::shuffle(free_blocks_.begin(), free_blocks_.end(), random_);
    blocks_.clear();
    lengths_.clear();
  }

  // Adds new tokens to the sequences, numbered from 0, and expects the same rows of both. `sees_ahead`: the
  // new tokens of each sequence, but for the first and the last, are an image's and see one another.
  void Step(const std::vector<std::pair<int, int64_t>>& sequences_and_tokens, int64_t padded_to = 0,
            AttentionParams params = {}, bool sees_ahead = false) {
    std::vector<PagedSequence> sequences;
    std::vector<std::vector<int64_t>> seen_ends;
    int64_t rows = 0;
    for (const auto& [sequence, tokens] : sequences_and_tokens) {
      if (static_cast<size_t>(sequence) >= blocks_.size()) {
        blocks_.resize(sequence + 1);
        lengths_.resize(sequence + 1);
      }
      lengths_[sequence] += tokens;
      while (static_cast<int64_t>(blocks_[sequence].size()) * kBlockSize < lengths_[sequence]) {
        blocks_[sequence].push_back(free_blocks_.back());
        free_blocks_.pop_back();
      }
    }
    for (const auto& [sequence, tokens] : sequences_and_tokens) {
      sequences.push_back({.first_token = rows,
                           .num_tokens = tokens,
                           .context_length = lengths_[sequence],
                           .blocks = blocks_[sequence].data()});
      rows += tokens;
      if (!sees_ahead) continue;
      std::vector<int64_t>& ends = seen_ends.emplace_back();
      const int64_t end = lengths_[sequence];
      for (int64_t t = end - tokens; t < end; ++t) {
        ends.push_back(t == end - tokens || t == end - 1 ? t + 1 : end - 1);
      }
      sequences.back().seen_ends = ends.data();
    }
    params.scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
    const int64_t batch_rows = std::max(rows, padded_to);
    attention_->Plan(sequences, padded_to);
    PagedAttention reference(*here_, sequences);
    for (int64_t layer = 0; layer < 2; ++layer) {
      const Inputs in = Random(batch_rows);
      const Inputs there = in.To(kGpu);
      const at::Tensor expected = Forward(
          reference, layer,
          {in.q.narrow(0, 0, rows), in.k.narrow(0, 0, rows), in.v.narrow(0, 0, rows)}, params);
      const at::Tensor found = Forward(*attention_, layer, there, params).narrow(0, 0, rows);
      ASSERT_EQ(found.scalar_type(), dtype_);
      ASSERT_EQ(found.sizes(), expected.sizes());
      const double tolerance = dtype_ == at::kFloat ? 1e-5 : 4e-2;
      const at::Tensor difference = (found.cpu().to(at::kDouble) - expected.to(at::kDouble)).abs();
      EXPECT_LT(difference.max().item<double>(), tolerance)
          << shape_.num_heads << " heads, " << shape_.num_kv_heads << " KV heads, head_dim "
          << shape_.head_dim << " and " << shape_.value_dim() << ", " << rows << " rows padded to "
          << padded_to;
    }
  }

  at::Tensor Forward(Attention& attention, int64_t layer, const Inputs& in,
                     const AttentionParams& params) const {
    return shape_.shared ? attention.ForwardLatents(layer, in.q, in.k.select(1, 0), params)
                         : attention.Forward(layer, in.q, in.k, in.v, params);
  }

  // Views of one fused tensor, as the projection gives them.
  Inputs Random(int64_t rows) const {
    const int64_t heads = shape_.num_heads + 2 * shape_.num_kv_heads;
    const int64_t widest = std::max(shape_.head_dim, shape_.value_dim());
    const at::Tensor fused = at::randn({rows, heads, widest}).to(dtype_);
    const auto part = [&](int64_t first, int64_t count, int64_t dim) {
      return fused.narrow(1, first, count).narrow(2, 0, dim);
    };
    return {part(0, shape_.num_heads, shape_.head_dim),
            part(shape_.num_heads, shape_.num_kv_heads, shape_.head_dim),
            part(shape_.num_heads + shape_.num_kv_heads, shape_.num_kv_heads, shape_.value_dim())};
  }

  // Prompts in chunks beside sequences that decode, long ones too.
  void TakeAllKindsOfSteps() {
    Step({{0, 5}});
    Step({{0, 1}});
    Step({{1, 700}, {0, 1}});
    Step({{0, 1}, {1, 300}, {2, 64}});
    Step({{3, 1}, {0, 1}, {1, 1}, {2, 1}});
    Step({{1, 1}});
    Step({{1, 2500}});
    Step({{1, 1}, {0, 1}});
    // As graphs are captured.
    Step({{1, 1}, {0, 1}, {2, 1}}, 3);
    Step({{1, 1}, {0, 1}, {2, 1}}, 8);
    Step({{2, 1}}, 8);
  }

  const c10::InferenceMode inference_;
  std::mt19937_64 random_{1};
  Shape shape_;
  at::ScalarType dtype_ = at::kFloat;
  std::unique_ptr<PagedKvCache> here_, there_;
  std::unique_ptr<DeviceAttention> attention_;
  std::vector<int32_t> free_blocks_;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<int64_t> lengths_;
};

TEST_F(CudaAttention, InBfloat16IsTheCpus) {
  // The shapes of Qwen2.5 0.5B, 1.5B and 7B, and groups of one head and of many.
  for (const Shape& shape : {Shape{14, 2, 64}, Shape{12, 2, 128}, Shape{28, 4, 128},
                             Shape{4, 4, 64}, Shape{40, 2, 128}}) {
    Make(shape, at::kBFloat16);
    TakeAllKindsOfSteps();
  }
}

TEST_F(CudaAttention, InFloat32IsTheCpus) {
  for (const Shape& shape :
       {Shape{14, 2, 64}, Shape{28, 4, 128}, Shape{6, 2, 12}, Shape{5, 5, 7}, Shape{2, 1, 256}}) {
    Make(shape, at::kFloat);
    TakeAllKindsOfSteps();
  }
}

TEST_F(CudaAttention, OfValuesOfAnotherSizeIsTheCpus) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Shape& shape : {Shape{4, 4, 192, 128}, Shape{6, 2, 24, 40}}) {
      Make(shape, dtype);
      TakeAllKindsOfSteps();
    }
  }
}

TEST_F(CudaAttention, OverLatentsIsTheCpus) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    // DeepSeek's heads of one of 8 ranks, GLM-4.7-Flash's and MiniCPM3's sizes, and some of no tile.
    for (const Shape& shape : {Shape{16, 1, 576, 512, true}, Shape{20, 1, 576, 512, true},
                               Shape{40, 1, 288, 256, true}, Shape{3, 1, 44, 40, true}}) {
      Make(shape, dtype);
      TakeAllKindsOfSteps();
    }
    AttentionParams params;
    params.window = 37;
    Step({{0, 90}, {1, 20}}, 0, params);
  }
}

TEST_F(CudaAttention, RefusesLatentsThatAreTooLong) {
  ASSERT_OK_AND_ASSIGN(const PagedKvCache cache, PagedKvCache::Create({.num_layers = 1,
                                                                       .num_blocks = 4,
                                                                       .num_kv_heads = 1,
                                                                       .head_dim = 640,
                                                                       .v_head_dim = 512,
                                                                       .shared = true,
                                                                       .device = kGpu}));
  EXPECT_EQ(CreateCudaAttention(cache, 8).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(CudaAttention, HonoursSoftcapWindowAndSinks) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Make({8, 2, 64}, dtype);
    AttentionParams params;
    params.softcap = 2.0;
    params.window = 37;
    Step({{0, 90}, {1, 20}}, 0, params);
    params.sinks = at::randn({8});
    Step({{0, 1}, {1, 40}}, 0, params);
    params.window = {32, /*in_chunks=*/true};
    Step({{0, 5}, {1, 40}}, 0, params);
  }
}

// Of head sizes that FlashInfer takes otherwise, too.
TEST_F(CudaAttention, TokensOfImagesSeeOneAnother) {
  for (const Shape& shape : {Shape{8, 2, 64}, Shape{4, 2, 256}, Shape{6, 3, 12}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Make(shape, dtype);
      AttentionParams params;
      Step({{0, 90}, {1, 20}}, 0, params, /*sees_ahead=*/true);
      Step({{0, 1}, {1, 1}}, 0, params);
      params.window = 37;
      Step({{0, 50}, {2, 3}}, 0, params, /*sees_ahead=*/true);
      Step({{0, 1}, {2, 1}}, 2, params);
    }
  }
}

TEST_F(CudaAttention, RefusesACacheThatFreesBlocks) {
  ASSERT_OK_AND_ASSIGN(const PagedKvCache cache, PagedKvCache::Create({.num_layers = 2,
                                                                       .num_blocks = 4,
                                                                       .num_kv_heads = 2,
                                                                       .head_dim = 64,
                                                                       .device = kGpu,
                                                                       .windows = {0, 16}}));
  EXPECT_EQ(CreateCudaAttention(cache, 8).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(CudaAttention, PlansOfOneSizeHaveOneAddress) {
  Make({14, 2, 64}, at::kBFloat16);
  Step({{0, 2000}, {1, 3}});
  Step({{0, 1}, {1, 1}}, 4);
  const int64_t epoch = attention_->address_epoch();
  Step({{0, 1}, {1, 1}, {2, 1}}, 4);
  Step({{0, 1500}});
  Step({{0, 1}}, 1);
  EXPECT_EQ(attention_->address_epoch(), epoch);
}

TEST(CudaKvCache, ABlockIsCopiedInAllLayers) {
  TANDEM_SKIP_WITHOUT_CUDA();
  const PagedKvCacheOptions alike{.num_layers = 3,
                                  .num_blocks = 6,
                                  .block_size = 16,
                                  .num_kv_heads = 2,
                                  .head_dim = 8,
                                  .dtype = at::kBFloat16,
                                  .device = kGpu};
  PagedKvCacheOptions smaller_values = alike;
  smaller_values.v_head_dim = 4;
  PagedKvCacheOptions latents = alike;
  latents.num_kv_heads = 1;
  latents.v_head_dim = 6;
  latents.shared = true;
  PagedKvCacheOptions that_differ = alike;
  that_differ.layers = {{2, 8, 4}, {3, 12, 12}, {2, 8, 4}};
  for (const PagedKvCacheOptions& options : {alike, smaller_values, latents, that_differ}) {
    ASSERT_OK_AND_ASSIGN(PagedKvCache cache, PagedKvCache::Create(options));
    std::vector<at::Tensor> before;
    for (int64_t layer = 0; layer < 3; ++layer) {
      at::Tensor(cache.keys(layer)).normal_();
      if (!options.shared) at::Tensor(cache.values(layer)).normal_();
    }
    for (int64_t layer = 0; layer < 3; ++layer) {
      const CacheSpec& spec = cache.layer(layer);
      EXPECT_EQ(cache.keys(layer).sizes(),
                (std::vector<int64_t>{7, spec.num_kv_heads, 16, spec.head_dim}));
      EXPECT_EQ(cache.values(layer).sizes(),
                (std::vector<int64_t>{7, spec.num_kv_heads, 16, spec.v_head_dim}));
      if (options.shared) {
        EXPECT_TRUE(at::equal(cache.values(layer), cache.keys(layer).narrow(3, 0, 6)));
      }
      before.push_back(cache.keys(layer).clone());
      before.push_back(cache.values(layer).clone());
    }
    cache.CopyBlock(1, 4);
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (const bool is_key : {true, false}) {
        const at::Tensor& tensor = is_key ? cache.keys(layer) : cache.values(layer);
        const at::Tensor& was = before[2 * layer + (is_key ? 0 : 1)];
        EXPECT_TRUE(at::equal(tensor[4], was[1])) << "layer " << layer;
        for (const int64_t block : {0, 1, 2, 3, 5}) {
          EXPECT_TRUE(at::equal(tensor[block], was[block]))
              << "layer " << layer << " block " << block;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::model
