// The CUDA kernels of a layer on a CPU, against the CPU's own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "common/model/activation.h"
#include "common/model/attention_plan.h"
#include "common/model/eager_ops.h"
#include "common/model/kernels/log_probs.h"
#include "common/model/norm.h"
#include "common/model/packed_places.h"
#include "common/model/paged_attention.h"
#include "common/model/rotary.h"
#include "tests/common/model/layer_kinds.h"
#include "tests/common/model/other_rotations.h"
#include "tests/support/cuda_emulation.h"
#include "tests/support/status_matchers.h"
// After it.
#include "common/model/kernels/cuda/plain_attention.cu"
#include "common/model/kernels/cuda/row_kernels.cu"

namespace tandem::model {
namespace {

class CudaKernels : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes).to(GetParam()); }
  static cuda::Element type() {
    return GetParam() == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
  }
  static void ExpectSame(const at::Tensor& found, const at::Tensor& expected) {
    const double tolerance = GetParam() == at::kFloat ? 2e-6 : 1e-2;
    EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected.to(at::kDouble), tolerance, tolerance))
        << (found - expected).abs().max().item<double>();
  }
};

TEST_P(CudaKernels, NormsAreTheCpus) {
  const auto pointer = [](const at::Tensor& tensor) -> const void* {
    return tensor.defined() ? tensor.const_data_ptr() : nullptr;
  };
  for (const int64_t size : {1032, 24, 7}) {
    for (const NormSpec& spec : NormKinds()) {
      for (const bool with_delta : {false, true}) {
        const at::Tensor x = Random({3, size});
        const at::Tensor delta = with_delta ? Random({3, size}) : at::Tensor();
        const Norm norm = RandomNorm(spec, size, x.options());
        const ResidualNorm expected = AddNorm(x, delta, norm);
        ResidualNorm found{at::empty_like(x), at::empty_like(x)};
        cuda::Norm args{type(), spec, 3, size, x.const_data_ptr()};
        if (with_delta) {
          args.delta = delta.const_data_ptr();
          args.sum = found.residual.mutable_data_ptr();
        }
        args.weight = pointer(norm.weight);
        args.bias = pointer(norm.bias);
        args.out = found.normed.mutable_data_ptr();
        ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
        ExpectSame(found.normed, expected.normed);
        if (with_delta) ExpectSame(found.residual, expected.residual);
      }
    }
  }
}

// A sum over a row has one order, whether its elements are moved one by one or several at once.
TEST_P(CudaKernels, NormsDoNotDependOnAddresses) {
  for (const int64_t size : {4104, 24}) {
    at::Tensor normed[2];
    const at::Tensor x = Random({3, size});
    const at::Tensor delta = Random({3, size});
    const at::Tensor weight = Random({size});
    for (const int64_t offset : {0, 1}) {
      const auto moved = [&](const at::Tensor& tensor) {
        const at::Tensor room = at::empty({tensor.numel() + offset}, tensor.options());
        return room.narrow(0, offset, tensor.numel()).view(tensor.sizes()).copy_(tensor);
      };
      const at::Tensor at_offset = moved(x);
      const at::Tensor sum = at::empty_like(x);
      normed[offset] = at::empty_like(x);
      cuda::Norm args{type(), NormSpec(), 3, size, at_offset.const_data_ptr()};
      args.delta = delta.const_data_ptr();
      args.weight = weight.const_data_ptr();
      args.sum = sum.mutable_data_ptr();
      args.out = normed[offset].mutable_data_ptr();
      ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
    }
    EXPECT_TRUE(at::equal(normed[0], normed[1])) << size;
  }
}

TEST_P(CudaKernels, ActivationsAreTheCpus) {
  for (const int64_t size : {2056, 16, 5}) {
    for (const ActivationFunction& function : ActivationKinds(at::TensorOptions(GetParam()))) {
      const at::Tensor in = Random({3, function.gated ? 2 * size : size}) * 4;
      const at::Tensor found = at::empty({3, size}, GetParam());
      cuda::Activate args{type(), function.activation, function.gated, 3, size};
      args.in = in.const_data_ptr();
      args.out = found.mutable_data_ptr();
      if (function.alphas.defined()) args.alphas = function.alphas.const_data_ptr();
      ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
      ExpectSame(found, Activate(in, function));
    }
  }
}

TEST_P(CudaKernels, HeadsOfEveryKindAreTheCpus) {
  const QkvShape shape{6, 2, 24};
  for (const HeadRotation& rotation : OtherRotations(shape, 3, GetParam())) {
    const at::Tensor qkv = Random({3, 10 * shape.head_dim});
    const at::Tensor expected = RotateQkv(qkv, rotation).q;
    const at::Tensor q = at::empty_like(expected);
    cuda::TransformHeads args;
    args.type = type();
    args.rows = 3;
    args.num_heads = static_cast<int>(shape.num_heads);
    args.head_dim = static_cast<int>(shape.head_dim);
    args.in = qkv.const_data_ptr();
    args.in_stride = qkv.stride(0);
    args.out = q.mutable_data_ptr();
    if (rotation.angles.cos.defined()) {
      args.cos = rotation.angles.cos.const_data_ptr<float>();
      args.sin = rotation.angles.sin.const_data_ptr<float>();
      args.rotary_dim = static_cast<int>(2 * rotation.angles.cos.size(1));
      args.interleaved = rotation.angles.interleaved;
    }
    if (rotation.norm.has_value()) {
      const QkNormSpec& spec = *rotation.norm;
      using Norm = cuda::TransformHeads::Norm;
      args.norm = spec.norm.kind == NormKind::kRms ? Norm::kRms : Norm::kLayer;
      args.after_rotation = spec.after_rotation;
      args.all_heads = spec.over == QkNormSpec::Over::kAllHeads;
      args.own_weights = spec.over == QkNormSpec::Over::kEachHead;
      args.unit_offset = spec.norm.unit_offset;
      args.eps = static_cast<float>(spec.norm.eps);
      if (spec.norm.weight) args.weight = rotation.q_norm.weight.const_data_ptr();
      if (spec.norm.bias) args.bias = rotation.q_norm.bias.const_data_ptr();
    }
    if (rotation.query_scale.defined()) {
      args.row_scale = rotation.query_scale.const_data_ptr<float>();
    }
    ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
    ExpectSame(q, expected);
  }
}

TEST_P(CudaKernels, RotatedHeadsAreTheCpus) {
  for (const QkvShape& shape : {QkvShape{14, 2, 64}, QkvShape{6, 2, 12}}) {
    for (const bool with_norms : {false, true}) {
      const int64_t half = shape.head_dim / 2;
      const at::Tensor positions = at::tensor({5, 0, 901}, at::kLong);
      const at::Tensor frequencies =
          at::pow(10000.0, -at::arange(half).to(at::kDouble) / half).to(at::kFloat);
      const RotaryAngles rotary = AnglesOf(positions, frequencies);
      const RotaryAngles table{at::empty({3, half}), at::empty({3, half})};
      cuda::RotaryTable table_args;
      table_args.rows = 3;
      table_args.size = static_cast<int>(half);
      table_args.positions = positions.const_data_ptr<int64_t>();
      std::memcpy(table_args.frequencies, frequencies.const_data_ptr(), half * sizeof(float));
      table_args.cos = table.cos.mutable_data_ptr<float>();
      table_args.sin = table.sin.mutable_data_ptr<float>();
      ASSERT_EQ(cuda::Launch(table_args, nullptr), cudaSuccess);
      EXPECT_TRUE(at::allclose(table.cos, rotary.cos, 1e-6, 1e-6));
      EXPECT_TRUE(at::allclose(table.sin, rotary.sin, 1e-6, 1e-6));

      const int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
      const at::Tensor qkv = Random({3, width});
      HeadRotation rotation{.angles = rotary, .shape = shape};
      if (with_norms) {
        rotation.norm.emplace();
        rotation.q_norm.weight = Random({shape.head_dim});
        rotation.k_norm.weight = Random({shape.head_dim});
      }
      const Qkv expected = RotateQkv(qkv, rotation);
      const at::Tensor q = at::empty_like(expected.q);
      const at::Tensor k = at::empty_like(expected.k);
      cuda::Rotate args;
      args.type = type();
      args.rows = 3;
      args.num_heads = static_cast<int>(shape.num_heads);
      args.num_kv_heads = static_cast<int>(shape.num_kv_heads);
      args.head_dim = static_cast<int>(shape.head_dim);
      args.qkv = qkv.const_data_ptr();
      args.qkv_stride = width;
      args.q = q.mutable_data_ptr();
      args.k = k.mutable_data_ptr();
      args.cos = table_args.cos;
      args.sin = table_args.sin;
      args.q_norm = with_norms ? rotation.q_norm.weight.const_data_ptr() : nullptr;
      args.k_norm = with_norms ? rotation.k_norm.weight.const_data_ptr() : nullptr;
      args.eps = 1e-6f;
      ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
      ExpectSame(q, expected.q);
      ExpectSame(k, expected.k);
    }
  }
}

TEST_P(CudaKernels, PagedAttentionIsTheCpus) {
  constexpr int64_t kBlockSize = 16;
  const std::vector<std::vector<int32_t>> blocks = {{7, 3, 11}, {4, 9}};
  for (const int64_t head_dim : {64, 12, 7, 128, 256}) {
    const int64_t heads = 6, kv_heads = 2;
    ASSERT_OK_AND_ASSIGN(const PagedKvCache cache, PagedKvCache::Create({.num_layers = 1,
                                                                         .num_blocks = 20,
                                                                         .block_size = kBlockSize,
                                                                         .num_kv_heads = kv_heads,
                                                                         .head_dim = head_dim,
                                                                         .dtype = GetParam()}));
    // What was there before must not matter.
    const at::Tensor keys = at::full({21, kv_heads, kBlockSize, head_dim}, NAN, GetParam());
    const at::Tensor values = at::full_like(keys, NAN);
    std::vector<int64_t> lengths(2, 0);
    for (const std::vector<std::pair<int, int64_t>>& step :
         {std::vector<std::pair<int, int64_t>>{{0, 20}, {1, 1}}, {{1, 5}, {0, 1}}, {{0, 1}}}) {
      AttentionParams params;
      params.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
      if (head_dim == 12) {
        params.softcap = 2.0;
        params.window = 4;
        params.sinks = at::randn({heads});
      }
      std::vector<PagedSequence> sequences;
      int64_t rows = 0;
      for (const auto& [sequence, tokens] : step) {
        lengths[sequence] += tokens;
        sequences.push_back({rows, tokens, lengths[sequence], blocks[sequence].data()});
        rows += tokens;
      }
      const at::Tensor fused = Random({rows, heads + 2 * kv_heads, head_dim});
      const at::Tensor q = fused.narrow(1, 0, heads);
      const at::Tensor k = fused.narrow(1, heads, kv_heads);
      const at::Tensor v = fused.narrow(1, heads + kv_heads, kv_heads);
      PagedAttention reference(cache, sequences);
      const at::Tensor expected = reference.Forward(0, q, k, v, params);

      const AttentionPlan plan = PlanAttention(
          sequences, {.heads_per_kv_head = heads / kv_heads, .block_size = kBlockSize});
      cuda::WriteKv write;
      write.type = type();
      write.rows = rows;
      write.num_kv_heads = kv_heads;
      write.head_dim = static_cast<int>(head_dim);
      write.block_size = kBlockSize;
      write.k = k.const_data_ptr();
      write.k_row_stride = k.stride(0);
      write.k_head_stride = k.stride(1);
      write.v = v.const_data_ptr();
      write.v_row_stride = v.stride(0);
      write.v_head_stride = v.stride(1);
      write.slots = plan.slots.data();
      write.keys = keys.mutable_data_ptr();
      write.values = values.mutable_data_ptr();
      ASSERT_EQ(cuda::Launch(write, nullptr), cudaSuccess);
      const at::Tensor found = at::empty_like(expected);
      cuda::PagedAttention args;
      args.batch.num_rows = rows;
      args.batch.row_sequence = plan.row_sequence.data();
      args.batch.row_position = plan.row_position.data();
      args.batch.page_starts = plan.page_starts.data();
      args.batch.pages = plan.pages.data();
      args.type = type();
      args.num_heads = heads;
      args.num_kv_heads = kv_heads;
      args.head_dim = write.head_dim;
      args.block_size = kBlockSize;
      args.q = q.const_data_ptr();
      args.q_row_stride = q.stride(0);
      args.q_head_stride = q.stride(1);
      args.keys = write.keys;
      args.values = write.values;
      args.out = found.mutable_data_ptr();
      args.scale = static_cast<float>(params.scale);
      args.softcap = static_cast<float>(params.softcap);
      args.window = params.window;
      if (params.sinks.has_value()) args.sinks = params.sinks->const_data_ptr<float>();
      ASSERT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
      ExpectSame(found, expected);
    }
  }
}

// A sequence's rows have the same bits packed among others, decoded token by token out of a cache
// of scattered blocks, and in chunks beside another sequence.
TEST_P(CudaKernels, AttentionIsTheSamePackedAndPaged) {
  constexpr int64_t kBlockSize = 4, kTokens = 23, kHeads = 6, kKvHeads = 2;
  const std::vector<int32_t> blocks = {7, 3, 11, 0, 9, 2};
  for (const int64_t head_dim : {64, 12, 128}) {
    for (const Window& window : {Window(0), Window(5), Window(6, /*in_chunks=*/true)}) {
      const at::Tensor fused = Random({kTokens, kHeads + 2 * kKvHeads, head_dim});
      cuda::PagedAttention args;
      args.type = type();
      args.num_heads = kHeads;
      args.num_kv_heads = kKvHeads;
      args.head_dim = static_cast<int>(head_dim);
      args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
      args.window = window;
      const auto attend = [&](const at::Tensor& tokens, const AttentionPlan& plan) {
        const at::Tensor out = at::empty({tokens.size(0), kHeads, head_dim}, tokens.options());
        args.batch.num_rows = tokens.size(0);
        args.batch.row_sequence = plan.row_sequence.data();
        args.batch.row_position = plan.row_position.data();
        args.batch.page_starts = plan.page_starts.data();
        args.batch.pages = plan.pages.data();
        args.q = tokens.const_data_ptr();
        args.q_row_stride = tokens.stride(0);
        args.q_head_stride = tokens.stride(1);
        args.out = out.mutable_data_ptr();
        EXPECT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
        return out;
      };

      const at::Tensor packed = at::cat({Random({9, kHeads + 2 * kKvHeads, head_dim}), fused,
                                         Random({2, kHeads + 2 * kKvHeads, head_dim})});
      const at::Tensor packed_keys = packed.narrow(1, kHeads, kKvHeads).contiguous();
      const at::Tensor packed_values = packed.narrow(1, kHeads + kKvHeads, kKvHeads).contiguous();
      args.keys = packed_keys.mutable_data_ptr();
      args.values = packed_values.mutable_data_ptr();
      args.block_size = 1;
      const std::vector<int64_t> cu_seqlens = {0, 9, 9, 9 + kTokens, 11 + kTokens};
      const at::Tensor expected =
          attend(packed.narrow(1, 0, kHeads), PackedPlan(cu_seqlens, {})).narrow(0, 9, kTokens);

      const at::Tensor keys = at::full({12, kKvHeads, kBlockSize, head_dim}, NAN, GetParam());
      const at::Tensor values = at::full_like(keys, NAN);
      for (int64_t t = 0; t < kTokens; ++t) {
        const int64_t block = blocks[t / kBlockSize];
        keys[block].select(1, t % kBlockSize).copy_(fused[t].narrow(0, kHeads, kKvHeads));
        values[block]
            .select(1, t % kBlockSize)
            .copy_(fused[t].narrow(0, kHeads + kKvHeads, kKvHeads));
      }
      args.keys = keys.mutable_data_ptr();
      args.values = values.mutable_data_ptr();
      args.block_size = kBlockSize;
      for (const int64_t chunk : {1, 7, 23}) {
        for (int64_t begin = 0; begin < kTokens; begin += chunk) {
          const int64_t tokens = std::min(chunk, kTokens - begin);
          // Beside the sequence's first token, decoded again.
          const std::vector<PagedSequence> sequences = {{0, 1, 1, blocks.data()},
                                                        {1, tokens, begin + tokens, blocks.data()}};
          const at::Tensor q =
              at::cat({fused.narrow(0, 0, 1), fused.narrow(0, begin, tokens)}).narrow(1, 0, kHeads);
          const at::Tensor found = attend(q, PlanAttention(sequences, {.block_size = kBlockSize}));
          EXPECT_TRUE(at::equal(found.narrow(0, 1, tokens), expected.narrow(0, begin, tokens)))
              << "head_dim " << head_dim << ", chunks of " << chunk << ", from " << begin;
          EXPECT_TRUE(at::equal(found[0], expected[0]));
        }
      }
    }
  }
}

// Tokens of images see to the end of their image: packed, and in a cache in chunks that cut no image.
TEST_P(CudaKernels, TokensSeeAheadPackedAndPaged) {
  constexpr int64_t kBlockSize = 4, kTokens = 23, kHeads = 4, kKvHeads = 2, kHeadDim = 12;
  const std::vector<int32_t> blocks = {7, 3, 11, 0, 9, 2};
  // Images of the tokens 2 to 9 and 12 to 22.
  std::vector<int64_t> ends(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) {
    ends[t] = t >= 2 && t < 10 ? 10 : t >= 12 && t < 22 ? 22 : t + 1;
  }
  for (const Window& window : {Window(0), Window(5)}) {
    const at::Tensor fused = Random({kTokens, kHeads + 2 * kKvHeads, kHeadDim});
    const at::Tensor keys = fused.narrow(1, kHeads, kKvHeads).contiguous();
    const at::Tensor values = fused.narrow(1, kHeads + kKvHeads, kKvHeads).contiguous();
    AttentionParams params;
    params.scale = 0.3;
    params.window = window;
    cuda::PagedAttention args;
    args.type = type();
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.scale = static_cast<float>(params.scale);
    args.window = window;
    const auto attend = [&](int64_t begin, int64_t tokens, const AttentionPlan& plan) {
      const at::Tensor q = fused.narrow(0, begin, tokens).narrow(1, 0, kHeads);
      const at::Tensor out = at::empty({tokens, kHeads * kHeadDim}, q.options());
      EXPECT_EQ(plan.row_last_key.size(), static_cast<size_t>(tokens));
      args.batch.num_rows = tokens;
      args.batch.row_sequence = plan.row_sequence.data();
      args.batch.row_position = plan.row_position.data();
      args.batch.row_last_key = plan.row_last_key.data();
      args.batch.page_starts = plan.page_starts.data();
      args.batch.pages = plan.pages.data();
      args.q = q.const_data_ptr();
      args.q_row_stride = q.stride(0);
      args.q_head_stride = q.stride(1);
      args.out = out.mutable_data_ptr();
      EXPECT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
      return out;
    };
    args.keys = keys.mutable_data_ptr();
    args.values = values.mutable_data_ptr();
    args.block_size = 1;
    const at::Tensor packed =
        attend(0, kTokens, PackedPlan(std::vector<int64_t>{0, kTokens}, ends));
    const at::Tensor expected = eager::PackedAttention(fused.narrow(1, 0, kHeads), keys, values,
                                                       at::tensor({int64_t{0}, kTokens}, at::kLong),
                                                       params, at::tensor(ends, at::kLong));
    EXPECT_LT((packed.to(at::kFloat) - expected.to(at::kFloat)).abs().max().item<float>(),
              GetParam() == at::kFloat ? 1e-5 : 3e-2);

    const at::Tensor cached_keys = at::full({12, kKvHeads, kBlockSize, kHeadDim}, NAN, GetParam());
    const at::Tensor cached_values = at::full_like(cached_keys, NAN);
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t block = blocks[t / kBlockSize];
      cached_keys[block].select(1, t % kBlockSize).copy_(keys[t]);
      cached_values[block].select(1, t % kBlockSize).copy_(values[t]);
    }
    args.keys = cached_keys.mutable_data_ptr();
    args.values = cached_values.mutable_data_ptr();
    args.block_size = kBlockSize;
    // The second image's first half is known.
    for (const auto& [begin, tokens] : {std::pair<int64_t, int64_t>{0, 10}, {10, 12}, {17, 6}}) {
      const std::vector<PagedSequence> sequences = {{.num_tokens = tokens,
                                                     .context_length = begin + tokens,
                                                     .blocks = blocks.data(),
                                                     .seen_ends = ends.data() + begin}};
      const at::Tensor found =
          attend(begin, tokens, PlanAttention(sequences, {.block_size = kBlockSize}));
      EXPECT_TRUE(at::equal(found, packed.narrow(0, begin, tokens))) << "from " << begin;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaKernels, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

TEST(CudaLogProbs, AreTheCpus) {
  const int64_t vocab = 3001;
  at::Tensor logits = at::randn({3, vocab}) * 4;
  logits[0][3] = -INFINITY;
  const std::vector<int64_t> targets = {700, 3000, -1};
  const std::vector<float> temperatures = {1.0f, 0.7f, 1.3f};
  std::vector<float> expected(9, 5.0f), found(9, 5.0f);
  kernels::LogProbsForward reference{vocab, logits.const_data_ptr<float>(), targets.data(),
                                     temperatures.data()};
  reference.log_probs = expected.data();
  reference.entropy = expected.data() + 3;
  reference.log_sum_exp = expected.data() + 6;
  kernels::LogProbsRows(reference, 0, 3);
  ASSERT_EQ(cuda::Launch(cuda::RowLogProbs{3, vocab, logits.const_data_ptr<float>(), targets.data(),
                                           temperatures.data(), found.data(), found.data() + 3,
                                           found.data() + 6},
                         nullptr),
            cudaSuccess);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(CudaLogProbs, GradientsAreTheCpus) {
  const int64_t vocab = 3001;
  at::Tensor logits = at::randn({3, vocab}) * 4;
  logits[0][3] = -INFINITY;
  const std::vector<int64_t> targets = {700, 3000, -1};
  const std::vector<float> temperatures = {1.0f, 0.7f, 1.3f};
  const std::vector<float> grad_log_probs = {-1.5f, 0.25f, 2.0f},
                           grad_entropy = {0.0f, 0.5f, -1.0f};
  std::vector<float> log_probs(3), entropy(3), log_sum_exp(3);
  kernels::LogProbsForward forward{vocab, logits.const_data_ptr<float>(), targets.data(),
                                   temperatures.data()};
  forward.log_probs = log_probs.data();
  forward.entropy = entropy.data();
  forward.log_sum_exp = log_sum_exp.data();
  kernels::LogProbsRows(forward, 0, 3);
  for (const float softcap : {0.0f, 30.0f}) {
    const float scale = softcap > 0 ? 0.5f : 1.0f;
    at::Tensor expected = logits.clone();
    kernels::LogProbsBackward reference{vocab, expected.mutable_data_ptr<float>()};
    reference.transform.scale = scale;
    reference.transform.softcap = softcap;
    reference.targets = targets.data();
    reference.temperatures = temperatures.data();
    reference.entropy = entropy.data();
    reference.log_sum_exp = log_sum_exp.data();
    reference.grad_log_probs = grad_log_probs.data();
    reference.grad_entropy = grad_entropy.data();
    kernels::LogProbsBackwardRows(reference, 0, 3);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      at::Tensor found = at::full({3, vocab}, 7.0, type);
      cuda::RowLogProbsBackward args;
      args.rows = 3;
      args.vocab = vocab;
      args.type = type == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
      args.logits = logits.const_data_ptr<float>();
      args.grad = found.mutable_data_ptr();
      args.scale = scale;
      args.softcap = softcap;
      args.targets = targets.data();
      args.temperatures = temperatures.data();
      args.entropy = entropy.data();
      args.log_sum_exp = log_sum_exp.data();
      args.grad_log_probs = grad_log_probs.data();
      args.grad_entropy = grad_entropy.data();
      ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
      const at::Tensor finite = logits.isfinite();
      const at::Tensor difference = (found.to(at::kFloat) - expected).masked_select(finite).abs();
      EXPECT_LT(difference.max().item<float>(), type == at::kFloat ? 1e-5 : 1e-2) << softcap;
      EXPECT_TRUE(found.isfinite().masked_select(finite).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace tandem::model
