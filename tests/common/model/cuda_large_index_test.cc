// Rows of arrays with more than 2^31 elements: a kernel computes the last one like that row alone.
// Only the blocks of the last row run, over memory of which only that row takes any.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation.h"
#include "tests/support/huge_array.h"
// After it.
#include "common/model/kernels/cuda/delta_forward.cu"
#include "common/model/kernels/cuda/delta_inputs.cu"
#include "common/model/kernels/cuda/latent_attention.cu"
#include "common/model/kernels/cuda/latent_rows.cu"
#include "common/model/kernels/cuda/plain_attention.cu"
#include "common/model/kernels/cuda/row_gradients.cu"
#include "common/model/kernels/cuda/row_kernels.cu"

namespace tandem::model {
namespace {

using ::tandem::cuda_emulation::OnlyBlocks;
using ::tandem::testing::HugeArray;

// Neither bfloat16 nor its bytes, twice as many, can be counted in 32 bits.
using Element = at::BFloat16;
constexpr int64_t kBeyond = (int64_t{1} << 31) + 1000;

int64_t RowsBeyond(int64_t row_size) { return kBeyond / row_size + 1; }

// An array of rows whose last is random, or zeros.
class HugeRows {
 public:
  HugeRows(int64_t rows, int64_t size, bool random = true)
      : array_(rows * size), last_((rows - 1) * size), size_(size) {
    if (!random) return;
    const at::Tensor values = at::randn({size}).to(at::kBFloat16);
    std::memcpy(last(), values.const_data_ptr(), values.nbytes());
  }
  Element* data() const { return array_.data(); }
  Element* last() const { return array_.data() + last_; }
  std::vector<uint16_t> LastBits() const {
    std::vector<uint16_t> bits(static_cast<size_t>(size_));
    std::memcpy(bits.data(), last(), bits.size() * sizeof(uint16_t));
    return bits;
  }

 private:
  const HugeArray<Element> array_;
  const int64_t last_;
  const int64_t size_;
};

// Launches over all rows, with only the last blocks, and then over the last row alone, which `alone`
// makes of the arguments; `out` has the same bits.
template <typename Args, typename Alone>
void ExpectLastRowLikeAlone(const Args& args, int64_t first_block, const HugeRows& out,
                            const Alone& alone) {
  {
    const OnlyBlocks last([&](dim3 block) { return block.x >= first_block; });
    ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
  }
  const std::vector<uint16_t> among_all = out.LastBits();
  EXPECT_NE(among_all, std::vector<uint16_t>(among_all.size()));
  std::memset(out.last(), 0, among_all.size() * sizeof(uint16_t));
  Args of_one = args;
  of_one.rows = 1;
  alone(of_one);
  ASSERT_EQ(cuda::Launch(of_one, nullptr), cudaSuccess);
  EXPECT_EQ(among_all, out.LastBits());
}

TEST(LargeIndices, Norm) {
  constexpr int64_t kSize = 4096;
  const int64_t rows = RowsBeyond(kSize);
  const HugeRows x(rows, kSize), delta(rows, kSize), sum(rows, kSize, false),
      out(rows, kSize, false);
  const at::Tensor weight = at::rand({kSize}).to(at::kBFloat16);
  cuda::Norm args{cuda::Element::kBFloat16, NormSpec(), rows, kSize, x.data(), delta.data()};
  args.weight = weight.const_data_ptr();
  args.sum = sum.data();
  args.out = out.data();
  ExpectLastRowLikeAlone(args, rows - 1, out, [&](cuda::Norm& of_one) {
    of_one.x = x.last();
    of_one.delta = delta.last();
    of_one.sum = sum.last();
    of_one.out = out.last();
  });
}

TEST(LargeIndices, NormBackward) {
  constexpr int64_t kSize = 4096;
  const int64_t rows = RowsBeyond(kSize);
  const HugeRows x(rows, kSize), grad(rows, kSize), out(rows, kSize, false);
  const at::Tensor weight = at::rand({kSize}).to(at::kBFloat16);
  const HugeArray<float> inverse(rows);
  inverse.data()[rows - 1] = 0.75f;
  cuda::NormBackward args{cuda::Element::kBFloat16, NormSpec(), rows, kSize, x.data()};
  args.weight = weight.const_data_ptr();
  args.inverse = inverse.data();
  args.grad_out = grad.data();
  args.grad_x = out.data();
  ExpectLastRowLikeAlone(args, rows - 1, out, [&](cuda::NormBackward& of_one) {
    of_one.x = x.last();
    of_one.inverse = inverse.data() + rows - 1;
    of_one.grad_out = grad.last();
    of_one.grad_x = out.last();
  });
}

// The forward pass of linear attention over a sequence of one row behind one of very many, whose state
// lies far from the first one: the bits of that row alone.
TEST(LargeIndices, LinearAttention) {
  cuda::DeltaShape shape{.type = cuda::Element::kBFloat16,
                         .num_key_heads = 1,
                         .num_value_heads = 2,
                         .key_dim = 128,
                         .value_dim = 128,
                         .kernel_size = 4,
                         .norm_eps = 1e-6f};
  const int64_t size = shape.channels() + shape.value_size() + 2 * shape.num_value_heads;
  const int64_t rows = RowsBeyond(shape.value_size());
  const HugeRows projected(rows, size), out(rows, shape.value_size(), false);
  const auto random = [](std::vector<int64_t> sizes) { return at::randn(sizes).to(at::kBFloat16); };
  const at::Tensor convolution = random({shape.channels(), shape.kernel_size});
  const at::Tensor of_heads = random({shape.num_value_heads});
  const at::Tensor norm = random({shape.value_dim});
  shape.projected = projected.data();
  shape.row_stride = size;
  shape.convolution = convolution.const_data_ptr();
  shape.a_log = shape.dt_bias = of_heads.const_data_ptr();
  shape.norm = norm.const_data_ptr();
  const HugeArray<float> q(rows * shape.key_size()), k(rows * shape.key_size()),
      v(rows * shape.value_size()), beta(rows * 2), decay(rows * 2), result(rows * size);
  const HugeArray<int32_t> row_sequence(rows), row_position(rows);
  row_sequence.data()[rows - 1] = 1;
  const int32_t row_starts[] = {0, static_cast<int32_t>(rows - 1), static_cast<int32_t>(rows)};
  const int32_t states[] = {-1, 3};
  const int64_t state_floats = shape.num_value_heads * shape.key_dim * shape.padded_value_dim();
  const int64_t tail_elements = (shape.kernel_size - 1) * shape.channels();
  constexpr int64_t kStride = kBeyond / 8 * 8;
  const HugeArray<char> state(3 * kStride + state_floats * 4),
      tail(3 * kStride + tail_elements * 2);
  cuda::DeltaBatch batch{.num_rows = rows,
                         .num_sequences = 2,
                         .row_sequence = row_sequence.data(),
                         .row_starts = row_starts,
                         .states = states,
                         .row_position = row_position.data(),
                         .state = state.data(),
                         .tail = tail.data(),
                         .state_stride = kStride};
  const cuda::DeltaInputs inputs{q.data(), k.data(), v.data(), beta.data(), decay.data()};
  const auto run = [&](const auto& first_block_of) {
    const auto launch = [&](const auto& args, int64_t items, int64_t of_block) {
      const int64_t first = first_block_of(items, of_block);
      const OnlyBlocks last([first](dim3 block) { return block.x >= first; });
      EXPECT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
    };
    launch(cuda::DeltaConvolve{shape, batch, inputs}, 2 + 2 + 1, 4);
    cuda::DeltaAdvance advance{shape, batch, inputs};
    advance.num_heads = shape.num_value_heads;
    advance.out = result.data();
    launch(advance, 0, shape.num_value_heads);
    launch(cuda::DeltaOutput{shape, batch, result.data(), out.data()}, shape.num_value_heads, 4);
    std::vector<uint16_t> bits = out.LastBits();
    for (const auto& [array, bytes] :
         {std::pair(state.data(), state_floats * 4), std::pair(tail.data(), tail_elements * 2)}) {
      const auto* const left = reinterpret_cast<const uint16_t*>(array + 3 * kStride);
      bits.insert(bits.end(), left, left + bytes / 2);
    }
    return bits;
  };
  // Blocks of the last row's items; of the recurrence, those of the second sequence.
  const std::vector<uint16_t> among_all = run([&](int64_t items, int64_t of_block) {
    return items == 0 ? of_block : (rows - 1) * items / of_block;
  });
  EXPECT_NE(among_all, std::vector<uint16_t>(among_all.size()));
  std::memset(out.last(), 0, shape.value_size() * sizeof(uint16_t));
  shape.projected = projected.last();
  const int32_t zero[] = {0};
  const int32_t starts_of_one[] = {0, 1};
  batch.num_rows = batch.num_sequences = 1;
  batch.row_sequence = batch.row_position = zero;
  batch.row_starts = starts_of_one;
  batch.states = states + 1;
  // Its results go to the first row.
  const auto of_one = run([](int64_t, int64_t) { return int64_t{0}; });
  const std::vector<uint16_t> first_row(
      reinterpret_cast<const uint16_t*>(out.data()),
      reinterpret_cast<const uint16_t*>(out.data()) + shape.value_size());
  EXPECT_TRUE(std::equal(first_row.begin(), first_row.end(), among_all.begin()));
  EXPECT_TRUE(std::equal(of_one.begin() + shape.value_size(), of_one.end(),
                         among_all.begin() + shape.value_size()));
}

TEST(LargeIndices, Activation) {
  constexpr int64_t kSize = 4096;
  const int64_t rows = RowsBeyond(kSize);
  const HugeRows in(rows, 2 * kSize), out(rows, kSize, false);
  cuda::Activate args{cuda::Element::kBFloat16, Activation::kSilu, true, rows, kSize};
  args.in = in.data();
  args.out = out.data();
  ExpectLastRowLikeAlone(args, rows - 1, out, [&](cuda::Activate& of_one) {
    of_one.in = in.last();
    of_one.out = out.last();
  });
}

TEST(LargeIndices, ActivationBackward) {
  constexpr int64_t kSize = 4096;
  const int64_t rows = RowsBeyond(kSize);
  const HugeRows in(rows, 2 * kSize), grad(rows, kSize), out(rows, 2 * kSize, false);
  cuda::ActivateBackward args{cuda::Element::kBFloat16, Activation::kSilu, true, rows, kSize};
  args.in = in.data();
  args.grad_out = grad.data();
  args.grad_in = out.data();
  ExpectLastRowLikeAlone(args, rows - 1, out, [&](cuda::ActivateBackward& of_one) {
    of_one.in = in.last();
    of_one.grad_out = grad.last();
    of_one.grad_in = out.last();
  });
}

constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr int64_t kQkvSize = (kHeads + 2 * kKvHeads) * kHeadDim;

// The angles of all rows, random in the last.
struct Angles {
  explicit Angles(int64_t rows) : cos(rows * kHeadDim / 2), sin(rows * kHeadDim / 2), at(rows - 1) {
    for (int i = 0; i < kHeadDim / 2; ++i) {
      last_cos()[i] = std::cos(0.1f * static_cast<float>(i + 1));
      last_sin()[i] = std::sin(0.1f * static_cast<float>(i + 1));
    }
  }
  float* last_cos() const { return cos.data() + at * kHeadDim / 2; }
  float* last_sin() const { return sin.data() + at * kHeadDim / 2; }

  HugeArray<float> cos, sin;
  int64_t at;
};

TEST(LargeIndices, Rotation) {
  const int64_t rows = RowsBeyond(kHeads * kHeadDim);
  const HugeRows qkv(rows, kQkvSize), q(rows, kHeads * kHeadDim, false),
      k(rows, kKvHeads * kHeadDim, false);
  const Angles angles(rows);
  cuda::Rotate args;
  args.type = cuda::Element::kBFloat16;
  args.rows = rows;
  args.num_heads = kHeads;
  args.num_kv_heads = kKvHeads;
  args.head_dim = kHeadDim;
  args.qkv = qkv.data();
  args.qkv_stride = kQkvSize;
  args.q = q.data();
  args.k = k.data();
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  const int64_t first_block =
      (rows - 1) * (kHeads + kKvHeads) / static_cast<int64_t>(cuda::kWarpsOfBlock);
  ExpectLastRowLikeAlone(args, first_block, q, [&](cuda::Rotate& of_one) {
    of_one.qkv = qkv.last();
    of_one.q = q.last();
    of_one.k = k.last();
    of_one.cos = angles.last_cos();
    of_one.sin = angles.last_sin();
  });
}

TEST(LargeIndices, TransformedHeads) {
  const int64_t rows = RowsBeyond(kHeads * kHeadDim);
  const HugeRows in(rows, kQkvSize), out(rows, kHeads * kHeadDim, false);
  const Angles angles(rows);
  cuda::TransformHeads args;
  args.type = cuda::Element::kBFloat16;
  args.rows = rows;
  args.num_heads = kHeads;
  args.head_dim = kHeadDim;
  args.in = in.data();
  args.in_stride = kQkvSize;
  args.out = out.data();
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  args.rotary_dim = kHeadDim;
  args.norm = cuda::TransformHeads::Norm::kRms;
  args.eps = 1e-6f;
  const int64_t first_block = (rows - 1) * kHeads / static_cast<int64_t>(cuda::kWarpsOfBlock);
  ExpectLastRowLikeAlone(args, first_block, out, [&](cuda::TransformHeads& of_one) {
    of_one.in = in.last();
    of_one.out = out.last();
    of_one.cos = angles.last_cos();
    of_one.sin = angles.last_sin();
  });
}

TEST(LargeIndices, RotationBackward) {
  const int64_t rows = RowsBeyond(kHeads * kHeadDim);
  const HugeRows grad_q(rows, kHeads * kHeadDim), grad_k(rows, kKvHeads * kHeadDim),
      grad_v(rows, kKvHeads * kHeadDim), out(rows, kQkvSize, false);
  const Angles angles(rows);
  cuda::RotateBackward args;
  args.type = cuda::Element::kBFloat16;
  args.rows = rows;
  args.num_heads = kHeads;
  args.num_kv_heads = kKvHeads;
  args.head_dim = args.v_head_dim = kHeadDim;
  args.grad_q = grad_q.data();
  args.grad_k = grad_k.data();
  args.grad_v = grad_v.data();
  args.grad_qkv = out.data();
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  const int64_t first_block = (rows - 1) * (kHeads + 2 * kKvHeads) / cuda::kGradientWarps;
  ExpectLastRowLikeAlone(args, first_block, out, [&](cuda::RotateBackward& of_one) {
    of_one.grad_q = grad_q.last();
    of_one.grad_k = grad_k.last();
    of_one.grad_v = grad_v.last();
    of_one.grad_qkv = out.last();
    of_one.cos = angles.last_cos();
    of_one.sin = angles.last_sin();
  });
}

TEST(LargeIndices, LogProbsAndTheirGradients) {
  constexpr int64_t kVocab = 152'064;
  const int64_t rows = RowsBeyond(kVocab);
  const HugeArray<float> logits(rows * kVocab), numbers(rows * 6);
  const HugeRows grad(rows, kVocab, false);
  const HugeArray<int64_t> targets(rows);
  const at::Tensor values = at::randn({kVocab}) * 4;
  float* const last_logits = logits.data() + (rows - 1) * kVocab;
  std::memcpy(last_logits, values.const_data_ptr(), values.nbytes());
  targets.data()[rows - 1] = kVocab - 3;
  // Temperatures, results and gradients of all rows, one after another.
  const auto of_rows = [&](int i) { return numbers.data() + i * rows; };
  of_rows(0)[rows - 1] = 0.8f;
  cuda::RowLogProbs forward{rows,       kVocab,     logits.data(), targets.data(),
                            of_rows(0), of_rows(1), of_rows(2),    of_rows(3)};
  {
    const OnlyBlocks last([&](dim3 block) { return block.x == rows - 1; });
    ASSERT_EQ(cuda::Launch(forward, nullptr), cudaSuccess);
  }
  const at::Tensor expected = at::log_softmax(values.to(at::kDouble) / 0.8, 0);
  EXPECT_NEAR(of_rows(1)[rows - 1], expected[kVocab - 3].item<double>(), 1e-4);

  of_rows(4)[rows - 1] = -1.5f;
  cuda::RowLogProbsBackward args;
  args.rows = rows;
  args.vocab = kVocab;
  args.type = cuda::Element::kBFloat16;
  args.logits = logits.data();
  args.grad = grad.data();
  args.targets = targets.data();
  args.temperatures = of_rows(0);
  args.entropy = of_rows(2);
  args.log_sum_exp = of_rows(3);
  args.grad_log_probs = of_rows(4);
  args.grad_entropy = of_rows(5);
  ExpectLastRowLikeAlone(args, rows - 1, grad, [&](cuda::RowLogProbsBackward& of_one) {
    of_one.logits = last_logits;
    of_one.grad = grad.last();
    of_one.targets = targets.data() + rows - 1;
    of_one.temperatures = of_rows(0) + rows - 1;
    of_one.entropy = of_rows(2) + rows - 1;
    of_one.log_sum_exp = of_rows(3) + rows - 1;
    of_one.grad_log_probs = of_rows(4) + rows - 1;
    of_one.grad_entropy = of_rows(5) + rows - 1;
  });
}

// A cache of more than 2^31 elements, of which a sequence uses the first block and the last.
TEST(LargeIndices, CachedKeysAndValues) {
  constexpr int kBlockSize = 16, kTokens = 20;
  constexpr int64_t kBlockElements = int64_t{kKvHeads} * kBlockSize * kHeadDim;
  const int64_t blocks = RowsBeyond(kBlockElements);
  const HugeArray<Element> keys(blocks * kBlockElements), values(blocks * kBlockElements);
  const HugeArray<Element> small_keys(2 * kBlockElements), small_values(2 * kBlockElements);
  const at::Tensor qkv = at::randn({kTokens, kHeads + 2 * kKvHeads, kHeadDim}).to(at::kBFloat16);
  const std::vector<int32_t> sequence = {0}, position = {kTokens - 1}, starts = {0, 2};

  const auto attend = [&](const HugeArray<Element>& k, const HugeArray<Element>& v,
                          const std::vector<int32_t>& pages) {
    std::vector<int32_t> slots;
    for (int t = 0; t < kTokens; ++t) {
      slots.push_back(pages[t / kBlockSize] * kBlockSize + t % kBlockSize);
    }
    cuda::WriteKv write;
    write.type = cuda::Element::kBFloat16;
    write.rows = kTokens;
    write.num_kv_heads = kKvHeads;
    write.head_dim = kHeadDim;
    write.block_size = kBlockSize;
    write.k = qkv.select(1, kHeads).const_data_ptr();
    write.v = qkv.select(1, kHeads + kKvHeads).const_data_ptr();
    write.k_row_stride = write.v_row_stride = qkv.stride(0);
    write.k_head_stride = write.v_head_stride = qkv.stride(1);
    write.slots = slots.data();
    write.keys = k.data();
    write.values = v.data();
    EXPECT_EQ(cuda::Launch(write, nullptr), cudaSuccess);
    const at::Tensor out = at::empty({kHeads, kHeadDim}, at::kBFloat16);
    cuda::PagedAttention args;
    args.batch.num_rows = 1;
    args.batch.row_sequence = sequence.data();
    args.batch.row_position = position.data();
    args.batch.page_starts = starts.data();
    args.batch.pages = pages.data();
    args.type = cuda::Element::kBFloat16;
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.block_size = kBlockSize;
    args.q = qkv[kTokens - 1].const_data_ptr();
    args.q_row_stride = qkv.stride(0);
    args.q_head_stride = kHeadDim;
    args.keys = k.data();
    args.values = v.data();
    args.out = out.mutable_data_ptr();
    args.scale = 0.1f;
    EXPECT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
    return out;
  };
  const at::Tensor found = attend(keys, values, {0, static_cast<int32_t>(blocks - 1)});
  const at::Tensor expected = attend(small_keys, small_values, {0, 1});
  EXPECT_TRUE(at::equal(found, expected));
}

TEST(LargeIndices, CachedLatents) {
  constexpr int kBlockSize = 16, kTokens = 20, kQueryHeads = 3, kDim = 72, kValueDim = 64;
  constexpr int64_t kBlockElements = int64_t{kBlockSize} * kDim;
  const int64_t blocks = RowsBeyond(kBlockElements);
  const HugeArray<Element> huge(blocks * kBlockElements), small(2 * kBlockElements);
  const at::Tensor latents = at::randn({kTokens, kDim}).to(at::kBFloat16);
  const at::Tensor q = at::randn({kQueryHeads, kDim}).to(at::kBFloat16);
  const std::vector<int32_t> zero = {0}, rows = {0, 1}, position = {kTokens - 1}, starts = {0, 2};
  const std::vector<int32_t> whole = {int32_t{1} << 30};
  const uint8_t is_real = 1;

  const auto attend = [&](const HugeArray<Element>& keys, const std::vector<int32_t>& pages) {
    std::vector<int32_t> slots;
    for (int t = 0; t < kTokens; ++t) {
      slots.push_back(pages[t / kBlockSize] * kBlockSize + t % kBlockSize);
    }
    cuda::WriteKv write;
    write.type = cuda::Element::kBFloat16;
    write.rows = kTokens;
    write.num_kv_heads = 1;
    write.head_dim = kDim;
    write.block_size = kBlockSize;
    write.block_stride = kBlockElements;
    write.k = latents.const_data_ptr();
    write.k_row_stride = write.k_head_stride = kDim;
    write.slots = slots.data();
    write.keys = keys.data();
    EXPECT_EQ(cuda::Launch(write, nullptr), cudaSuccess);
    const at::Tensor out = at::empty({kQueryHeads, kValueDim}, at::kBFloat16);
    cuda::PagedAttention args;
    args.batch.num_rows = args.batch.num_sequences = args.batch.num_pieces = 1;
    args.batch.tile_rows = 16;
    args.batch.row_sequence = args.batch.piece_sequence = args.batch.piece_tile =
        args.batch.piece_chunk = zero.data();
    args.batch.piece_is_real = &is_real;
    args.batch.row_position = position.data();
    args.batch.row_starts = args.batch.merge_starts = rows.data();
    args.batch.page_starts = starts.data();
    args.batch.pages = pages.data();
    args.batch.chunk_length = whole.data();
    args.type = cuda::Element::kBFloat16;
    args.num_heads = kQueryHeads;
    args.num_kv_heads = 1;
    args.head_dim = kDim;
    args.v_head_dim = kValueDim;
    args.shared = true;
    args.block_size = kBlockSize;
    args.block_stride = kBlockElements;
    args.q = q.const_data_ptr();
    args.q_row_stride = kQueryHeads * kDim;
    args.q_head_stride = kDim;
    args.keys = keys.data();
    args.out = out.mutable_data_ptr();
    args.scale = 0.1f;
    EXPECT_EQ(cuda::LaunchLatents(args, nullptr), cudaSuccess);
    return out;
  };
  const at::Tensor found = attend(huge, {0, static_cast<int32_t>(blocks - 1)});
  EXPECT_TRUE(at::equal(found, attend(small, {0, 1})));
}

TEST(LargeIndices, LatentRows) {
  constexpr int kQueryHeads = 16, kNope = 32, kRope = 16, kRank = 48;
  constexpr int64_t kQuerySize = kQueryHeads * (kNope + kRope);
  constexpr int64_t kAbsorbedSize = kQueryHeads * (kRank + kRope);
  const int64_t rows = RowsBeyond(kQuerySize);
  const HugeRows q(rows, kQuerySize), latent(rows, kRank), shared(rows, kRope),
      absorbed(rows, kAbsorbedSize, false), latents(rows, kRank + kRope, false);
  cuda::LatentRows args;
  args.type = cuda::Element::kBFloat16;
  args.rows = rows;
  args.num_heads = kQueryHeads;
  args.nope_dim = kNope;
  args.rope_dim = kRope;
  args.kv_rank = kRank;
  args.q = q.data();
  args.latent = latent.data();
  args.shared = shared.data();
  args.absorbed_q = absorbed.data();
  args.latents = latents.data();
  ExpectLastRowLikeAlone(args, rows - 1, absorbed, [&](cuda::LatentRows& of_one) {
    of_one.q = q.last();
    of_one.latent = latent.last();
    of_one.shared = shared.last();
    of_one.absorbed_q = absorbed.last();
    of_one.latents = latents.last();
  });
}

}  // namespace
}  // namespace tandem::model
