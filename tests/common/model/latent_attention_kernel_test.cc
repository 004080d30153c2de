// The kernel over a cache of latents, and the plain one over such a cache and over values of another
// size than keys, on a CPU, against float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "common/model/attention_plan.h"
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/latent_attention.cu"
#include "common/model/kernels/cuda/plain_attention.cu"
#include "common/model/kernels/cuda/row_kernels.cu"

namespace tandem::model {
namespace {

constexpr int64_t kBlockSize = 16;

struct Sizes {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t v_head_dim;
  bool shared;
};

// Tokens that are new, and all of the sequence.
using Lengths = std::vector<std::pair<int64_t, int64_t>>;

// Sequences in shuffled blocks of a layer's cache, between those of another layer where blocks have a
// stride.
class Batch {
 public:
  Batch(const Sizes& sizes, at::ScalarType dtype, const Lengths& lengths, bool strided,
        uint64_t seed)
      : sizes_(sizes), dtype_(dtype) {
    std::mt19937_64 random(seed);
    at::manual_seed(static_cast<uint64_t>(random()));
    int64_t num_blocks = 3;
    for (const auto& [tokens, length] : lengths) num_blocks += length / kBlockSize + 1;
    std::vector<int32_t> free(num_blocks);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    const int64_t of_keys = sizes.num_kv_heads * kBlockSize * sizes.head_dim;
    const int64_t of_values = sizes.shared ? 0 : sizes.num_kv_heads * kBlockSize * sizes.v_head_dim;
    const auto options = at::TensorOptions(dtype);
    if (strided) {
      block_stride_ = 2 * (of_keys + of_values);
      const at::Tensor blocks = at::full({num_blocks, block_stride_}, NAN, options);
      keys_ = blocks.narrow(1, 0, of_keys);
      values_ = blocks.narrow(1, of_keys, of_values);
    } else {
      keys_ = at::full({num_blocks, of_keys}, NAN, options);
      values_ = at::full({num_blocks, of_values}, NAN, options);
    }
    blocks_.resize(lengths.size());
    int64_t rows = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto [tokens, length] = lengths[i];
      for (int64_t at = 0; at < length; at += kBlockSize) {
        blocks_[i].push_back(free.back());
        free.pop_back();
      }
      sequences_.push_back({rows, tokens, length, blocks_[i].data()});
      rows += tokens;
      k_.push_back(at::randn({length, sizes.num_kv_heads, sizes.head_dim}).to(dtype));
      v_.push_back(sizes.shared
                       ? k_[i].narrow(2, 0, sizes.v_head_dim)
                       : at::randn({length, sizes.num_kv_heads, sizes.v_head_dim}).to(dtype));
      Write(i);
    }
    q_ = at::randn({rows, sizes.num_heads, sizes.head_dim}).to(dtype);
  }

  int64_t group() const { return sizes_.num_heads / sizes_.num_kv_heads; }

  at::Tensor Reference(const AttentionParams& params) const {
    std::vector<at::Tensor> results;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const PagedSequence& s = sequences_[i];
      const auto wide = [&](const at::Tensor& x) {
        return x.to(at::kDouble).repeat_interleave(group(), 1).transpose(0, 1);
      };
      const at::Tensor q =
          q_.narrow(0, s.first_token, s.num_tokens).to(at::kDouble).transpose(0, 1);
      at::Tensor scores = at::matmul(q, wide(k_[i]).transpose(1, 2)) * params.scale;
      if (params.softcap > 0) scores = params.softcap * at::tanh(scores / params.softcap);
      for (int64_t t = 0; t < s.num_tokens; ++t) {
        const int64_t position = s.context_length - s.num_tokens + t;
        const at::Tensor row = scores.select(1, t);
        row.narrow(1, 0, params.window.OldestSeen(position)).fill_(-INFINITY);
        row.narrow(1, position + 1, s.context_length - position - 1).fill_(-INFINITY);
      }
      if (params.sinks.has_value()) {
        scores = at::cat(
            {scores, params.sinks->to(at::kDouble).view({-1, 1, 1}).expand({-1, s.num_tokens, 1})},
            2);
      }
      const at::Tensor weights = at::softmax(scores, 2).narrow(2, 0, s.context_length);
      results.push_back(at::matmul(weights, wide(v_[i])).transpose(0, 1));
    }
    return at::cat(results);
  }

  // wanted_pieces: 0 for keys that are not split. extra: pieces of the launch beyond the plan's.
  at::Tensor Latents(const AttentionParams& params, int64_t wanted_pieces, int64_t extra,
                     absl::Span<const int64_t> tiles = cuda::kLatentTiles) {
    const AttentionPlan plan = PlanAttention(sequences_, {.heads_per_kv_head = group(),
                                                          .block_size = kBlockSize,
                                                          .wanted_pieces = wanted_pieces,
                                                          .tiles = tiles});
    num_chunks_ = plan.num_pieces();
    cuda::PagedAttention args = Args(plan, params);
    std::vector<uint8_t> is_real(plan.num_pieces(), 1);
    is_real.resize(plan.num_pieces() + extra, 0);
    const auto chunk = static_cast<int32_t>(plan.chunk == 0 ? int64_t{1} << 30 : plan.chunk);
    args.batch.num_sequences = plan.num_sequences();
    args.batch.num_pieces = plan.num_pieces() + extra;
    args.batch.tile_rows = static_cast<int>(plan.tile_rows);
    args.batch.split = wanted_pieces > 0;
    args.batch.row_starts = plan.row_starts.data();
    args.batch.piece_sequence = plan.piece_sequence.data();
    args.batch.piece_tile = plan.piece_tile.data();
    args.batch.piece_chunk = plan.piece_chunk.data();
    args.batch.piece_is_real = is_real.data();
    args.batch.merge_starts = plan.merge_starts.data();
    args.batch.chunk_length = &chunk;
    const int64_t partials = plan.num_partials() * sizes_.num_heads;
    const at::Tensor partial_out = at::full({partials, sizes_.v_head_dim}, NAN, dtype_);
    const at::Tensor partial_sums = at::full({partials}, NAN, at::kFloat);
    args.partial_out = partial_out.mutable_data_ptr();
    args.partial_log_sum_exp = partial_sums.mutable_data_ptr<float>();
    const at::Tensor out = Empty();
    args.out = out.mutable_data_ptr();
    EXPECT_EQ(cuda::LaunchLatents(args, nullptr), cudaSuccess);
    return out;
  }

  at::Tensor Plain(const AttentionParams& params) {
    const AttentionPlan plan = PlanAttention(sequences_, {.block_size = kBlockSize});
    cuda::PagedAttention args = Args(plan, params);
    const at::Tensor out = Empty();
    args.out = out.mutable_data_ptr();
    EXPECT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
    return out;
  }

  int64_t num_pieces() const { return num_chunks_; }  // of the last plan

 private:
  cuda::Element type() const {
    return dtype_ == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
  }

  at::Tensor Empty() const {
    return at::full({q_.size(0), sizes_.num_heads, sizes_.v_head_dim}, NAN, dtype_);
  }

  // All tokens of a sequence, as if they came at once.
  void Write(size_t sequence) {
    PagedSequence all = sequences_[sequence];
    all.first_token = 0;
    all.num_tokens = all.context_length;
    const AttentionPlan plan = PlanAttention({&all, 1}, {.block_size = kBlockSize});
    cuda::WriteKv write;
    write.type = type();
    write.rows = all.num_tokens;
    write.num_kv_heads = static_cast<int>(sizes_.num_kv_heads);
    write.head_dim = static_cast<int>(sizes_.head_dim);
    write.v_head_dim = static_cast<int>(sizes_.v_head_dim);
    write.block_size = kBlockSize;
    write.block_stride = block_stride_;
    write.k = k_[sequence].const_data_ptr();
    write.k_row_stride = k_[sequence].stride(0);
    write.k_head_stride = k_[sequence].stride(1);
    write.keys = keys_.mutable_data_ptr();
    if (!sizes_.shared) {
      write.v = v_[sequence].const_data_ptr();
      write.v_row_stride = v_[sequence].stride(0);
      write.v_head_stride = v_[sequence].stride(1);
      write.values = values_.mutable_data_ptr();
    }
    write.slots = plan.slots.data();
    ASSERT_EQ(cuda::Launch(write, nullptr), cudaSuccess);
  }

  cuda::PagedAttention Args(const AttentionPlan& plan, const AttentionParams& params) const {
    cuda::PagedAttention args;
    args.batch.num_rows = q_.size(0);
    args.batch.row_sequence = plan.row_sequence.data();
    args.batch.row_position = plan.row_position.data();
    args.batch.page_starts = plan.page_starts.data();
    args.batch.pages = plan.pages.data();
    args.type = type();
    args.num_heads = static_cast<int>(sizes_.num_heads);
    args.num_kv_heads = static_cast<int>(sizes_.num_kv_heads);
    args.head_dim = static_cast<int>(sizes_.head_dim);
    args.v_head_dim = static_cast<int>(sizes_.v_head_dim);
    args.shared = sizes_.shared;
    args.block_size = kBlockSize;
    args.block_stride = block_stride_;
    args.q = q_.const_data_ptr();
    args.q_row_stride = q_.stride(0);
    args.q_head_stride = q_.stride(1);
    args.keys = keys_.mutable_data_ptr();
    args.values = sizes_.shared ? nullptr : values_.mutable_data_ptr();
    args.scale = static_cast<float>(params.scale);
    args.softcap = static_cast<float>(params.softcap);
    args.window = params.window;
    if (params.sinks.has_value()) args.sinks = params.sinks->const_data_ptr<float>();
    return args;
  }

  const Sizes sizes_;
  const at::ScalarType dtype_;
  at::Tensor keys_, values_;
  int64_t block_stride_ = 0;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<PagedSequence> sequences_;
  std::vector<at::Tensor> k_, v_;  // of each sequence
  at::Tensor q_;
  int64_t num_chunks_ = 0;
};

double Difference(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).abs() / (1 + expected.abs())).max().item<double>();
}

AttentionParams ScaleOf(const Sizes& sizes) {
  AttentionParams params;
  params.scale = 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  return params;
}

constexpr double kRounding = 1e-2;  // of bfloat16 results near 1, of weights and of partial results

TEST(LatentAttentionKernel, IsAttentionOfRandomSizes) {
  std::mt19937_64 random(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int round = 0; round < 12; ++round) {
    const int64_t v_head_dim = 8 * draw(1, 18);
    const Sizes sizes{draw(1, 40), 1, v_head_dim + 8 * draw(0, 4), v_head_dim, true};
    Lengths lengths;
    for (int64_t i = draw(1, 3); i > 0; --i) {
      const int64_t tokens = draw(0, 1) == 0 ? 1 : draw(1, 9);
      lengths.emplace_back(tokens, tokens + draw(0, 90));
    }
    Batch batch(sizes, at::kBFloat16, lengths, round % 2 == 0, round);
    const AttentionParams params = ScaleOf(sizes);
    EXPECT_LT(Difference(batch.Latents(params, 0, draw(0, 2)), batch.Reference(params)), kRounding)
        << sizes.num_heads << " heads of " << sizes.head_dim << " and " << sizes.v_head_dim;
  }
}

TEST(LatentAttentionKernel, TakesAllItsTiles) {
  for (const int64_t& tile : cuda::kLatentTiles) {
    const Sizes sizes{11, 1, 40, 32, true};
    Batch batch(sizes, at::kBFloat16, {{7, 70}, {1, 1}, {3, 33}}, true, tile);
    const AttentionParams params = ScaleOf(sizes);
    EXPECT_LT(Difference(batch.Latents(params, 0, 0, {&tile, 1}), batch.Reference(params)),
              kRounding)
        << tile;
  }
}

TEST(LatentAttentionKernel, MergesTheChunksOfLongSequences) {
  const Sizes sizes{3, 1, 24, 16, true};
  // Of the first, the last chunks are seen by the last rows alone.
  Batch batch(sizes, at::kBFloat16, {{20, 270}, {1, 1300}, {1, 5}}, true, 1);
  const AttentionParams params = ScaleOf(sizes);
  const at::Tensor expected = batch.Reference(params);
  const at::Tensor whole = batch.Latents(params, 0, 0);
  const int64_t tiles = batch.num_pieces();
  EXPECT_LT(Difference(whole, expected), kRounding);
  const at::Tensor split = batch.Latents(params, 200, 3);
  EXPECT_GT(batch.num_pieces(), tiles);
  EXPECT_LT(Difference(split, expected), kRounding);
}

TEST(LatentAttentionKernel, TakesTheSizesOfDeepSeek) {
  const Sizes sizes{16, 1, 576, 512, true};
  Batch batch(sizes, at::kBFloat16, {{1, 41}}, true, 2);
  const AttentionParams params = ScaleOf(sizes);
  EXPECT_TRUE(cuda::LatentsTake(cuda::Element::kBFloat16, 576, 512));
  EXPECT_LT(Difference(batch.Latents(params, 0, 0), batch.Reference(params)), kRounding);
}

TEST(LatentAttentionKernel, TakesNoOtherSizes) {
  EXPECT_FALSE(cuda::LatentsTake(cuda::Element::kFloat32, 576, 512));
  EXPECT_FALSE(cuda::LatentsTake(cuda::Element::kBFloat16, 584, 512));
  EXPECT_FALSE(cuda::LatentsTake(cuda::Element::kBFloat16, 36, 32));
  EXPECT_FALSE(cuda::LatentsTake(cuda::Element::kBFloat16, 40, 36));
}

TEST(LatentAttentionKernel, AllTilesFitIntoTheSharedMemoryOfAnA100) {
  for (const int64_t tile : cuda::kLatentTiles) {
    EXPECT_LE(cuda::LatentSharedBytes(tile, cuda::kMaxSharedHeadDim),
              static_cast<int64_t>(cuda_emulation::kMaxOptInSharedBytes));
  }
}

class PlainAttentionOfSizes : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(PlainAttentionOfSizes, IsAttention) {
  uint64_t seed = 0;
  for (const Sizes& sizes :
       {Sizes{4, 4, 192, 128, false}, Sizes{3, 1, 24, 16, false}, Sizes{4, 2, 16, 40, false},
        Sizes{2, 1, 300, 130, false}, Sizes{3, 1, 576, 512, true}, Sizes{5, 1, 40, 32, true}}) {
    for (const bool strided : {false, true}) {
      Batch batch(sizes, GetParam(), {{1, 37}, {5, 21}}, strided, ++seed);
      AttentionParams params = ScaleOf(sizes);
      const double tolerance = GetParam() == at::kFloat ? 1e-5 : kRounding;
      EXPECT_LT(Difference(batch.Plain(params), batch.Reference(params)), tolerance);
      params.softcap = 3.0;
      params.window = strided ? Window(6, /*in_chunks=*/true) : Window(7);
      params.sinks = at::randn({sizes.num_heads});
      EXPECT_LT(Difference(batch.Plain(params), batch.Reference(params)), tolerance)
          << sizes.head_dim << " and " << sizes.v_head_dim;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PlainAttentionOfSizes, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

}  // namespace
}  // namespace tandem::model
