// Attention's kernels against plain ATen, one sequence after the other.
#include "common/model/packed_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <tuple>
#include <vector>

namespace tandem::model {
namespace {

using Implementation = PackedAttention::Implementation;

struct Shape {
  std::string name;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  std::vector<int64_t> lengths;
  int64_t window = 0;
  int64_t v_head_dim = 0;  // 0: head_dim

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
};

at::Tensor CuSeqlens(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> starts = {0};
  for (int64_t length : lengths) starts.push_back(starts.back() + length);
  return at::tensor(starts, at::kLong);
}

// The output and the gradients of q, k and v.
std::vector<at::Tensor> Attend(Implementation implementation, const Shape& shape,
                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  PackedAttention attention(CuSeqlens(shape.lengths), implementation);
  AttentionParams params;
  params.scale = 0.3;
  params.window = shape.window;
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : {q, k, v}) leaves.push_back(x.detach().clone().requires_grad_(true));
  const at::AutoGradMode grad(true);
  const at::Tensor out = attention.Forward(0, leaves[0], leaves[1], leaves[2], params);
  const at::Tensor weight = at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes());
  std::vector<at::Tensor> results = {out.detach()};
  for (const at::Tensor& g :
       torch::autograd::grad({(out.to(at::kDouble) * weight).sum()}, leaves)) {
    results.push_back(g);
  }
  return results;
}

class AttentionOfShape : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    int64_t tokens = 0;
    for (int64_t length : GetParam().lengths) tokens += length;
    q_ = at::randn({tokens, GetParam().num_heads, GetParam().head_dim});
    k_ = at::randn({tokens, GetParam().num_kv_heads, GetParam().head_dim});
    v_ = at::randn({tokens, GetParam().num_kv_heads, GetParam().value_dim()});
  }

  void ExpectClose(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& found,
                   double tolerance) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference =
          (expected[i].to(at::kDouble) - found[i].to(at::kDouble)).abs().max().item<double>();
      EXPECT_LT(difference, tolerance * (1 + expected[i].abs().max().item<double>()))
          << (i == 0   ? "output"
              : i == 1 ? "dq"
              : i == 2 ? "dk"
                       : "dv");
    }
  }

  at::Tensor q_, k_, v_;
};

TEST_P(AttentionOfShape, AgreesWithAtenInFloat32) {
  ExpectClose(Attend(Implementation::kEager, GetParam(), q_.to(at::kDouble), k_.to(at::kDouble),
                     v_.to(at::kDouble)),
              Attend(Implementation::kFast, GetParam(), q_, k_, v_), 1e-5);
}

TEST_P(AttentionOfShape, AgreesWithAtenInBFloat16) {
  const at::Tensor q = q_.to(at::kBFloat16), k = k_.to(at::kBFloat16), v = v_.to(at::kBFloat16);
  ExpectClose(Attend(Implementation::kEager, GetParam(), q.to(at::kDouble), k.to(at::kDouble),
                     v.to(at::kDouble)),
              Attend(Implementation::kFast, GetParam(), q, k, v), 2e-2);
}

TEST_P(AttentionOfShape, ReadsStridedViewsOfAFusedProjection) {
  const at::NoGradGuard no_grad;
  const Shape& shape = GetParam();
  const int64_t tokens = q_.size(0);
  const at::Tensor fused =
      at::cat({q_.view({tokens, -1}), k_.view({tokens, -1}), v_.view({tokens, -1})}, 1);
  const int64_t q_size = shape.num_heads * shape.head_dim;
  const int64_t k_size = shape.num_kv_heads * shape.head_dim;
  const int64_t v_size = shape.num_kv_heads * shape.value_dim();
  PackedAttention attention(CuSeqlens(shape.lengths));
  const AttentionParams params;
  const at::Tensor expected = attention.Forward(0, q_, k_, v_, params);
  const at::Tensor found = attention.Forward(
      0, fused.narrow(1, 0, q_size).unflatten(1, {shape.num_heads, shape.head_dim}),
      fused.narrow(1, q_size, k_size).unflatten(1, {shape.num_kv_heads, shape.head_dim}),
      fused.narrow(1, q_size + k_size, v_size)
          .unflatten(1, {shape.num_kv_heads, shape.value_dim()}),
      params);
  EXPECT_TRUE(at::equal(expected, found));
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOfShape,
                         ::testing::Values(Shape{"OneToken", 2, 1, 8, {1}},
                                           Shape{"Ragged", 4, 2, 16, {1, 7, 33, 2, 64, 1, 19}},
                                           Shape{"EmptySequences", 2, 2, 8, {0, 5, 0, 3, 0}},
                                           Shape{"SeveralBlocksOfKeys", 2, 1, 64, {530, 3, 257}},
                                           Shape{"CutInTasks", 1, 1, 8, {2100}},
                                           Shape{"OddHeadDim", 3, 3, 6, {17, 40}},
                                           Shape{"LargeGroup", 60, 1, 10, {13, 50}},
                                           Shape{"Window", 4, 2, 8, {40, 9, 600}, 5},
                                           Shape{"WideWindow", 2, 1, 16, {700}, 300},
                                           Shape{"NarrowValues", 4, 4, 24, {1, 60, 330}, 0, 10},
                                           Shape{"WideValues", 4, 2, 8, {17, 200}, 0, 40},
                                           Shape{"NarrowValuesInAWindow", 2, 1, 20, {300}, 30, 7}),
                         [](const ::testing::TestParamInfo<Shape>& info) {
                           return info.param.name;
                         });

TEST(PackedAttention, ARowDoesNotDependOnWhatSharesTheBatch) {
  at::manual_seed(1);
  const at::NoGradGuard no_grad;
  const at::Tensor q = at::randn({340, 4, 16}), k = at::randn({340, 2, 16}),
                   v = at::randn({340, 2, 16});
  const AttentionParams params;
  PackedAttention together(CuSeqlens({20, 300, 20}));
  PackedAttention alone(CuSeqlens({290}));
  const at::Tensor all = together.Forward(0, q, k, v, params);
  // The first 290 tokens of the middle sequence.
  const at::Tensor part =
      alone.Forward(0, q.narrow(0, 20, 290), k.narrow(0, 20, 290), v.narrow(0, 20, 290), params);
  EXPECT_TRUE(at::equal(all.narrow(0, 20, 290), part));
}

// Rows of whole sequences (length, leading tokens that are the owner's) of which a shared batch
// keeps those that are not the owner's.
struct Member {
  int64_t length;
  int64_t prefix;  // 0: an owner
};

// The results of whole sequences whose prefixes are equal, and of the same with these computed
// once: output, and the gradients of q, k and v with those of equal rows added up.
class SharedPrefix : public ::testing::TestWithParam<std::tuple<at::ScalarType, Window>> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    std::vector<int64_t> lengths, shared_lengths, kept, prefixes;
    int64_t row = 0, owner = 0, shared_owner = 0;
    std::vector<int64_t> source;  // of each row, the one whose values it has
    for (const Member& member : kMembers) {
      if (member.prefix == 0) {
        owner = row;
        shared_owner = static_cast<int64_t>(kept.size());
      }
      prefixes.insert(prefixes.end(), {shared_owner, member.prefix});
      lengths.push_back(member.length);
      shared_lengths.push_back(member.length - member.prefix);
      for (int64_t t = 0; t < member.length; ++t, ++row) {
        source.push_back(t < member.prefix ? owner + t : row);
        if (t >= member.prefix) kept.push_back(row);
      }
    }
    source_ = at::tensor(source, at::kLong);
    kept_ = at::tensor(kept, at::kLong);
    prefixes_ = at::tensor(prefixes, at::kLong).view({-1, 2});
    whole_ = CuSeqlens(lengths);
    shared_ = CuSeqlens(shared_lengths);
    for (const auto& [heads, dim] : {std::pair(kHeads, kHeadDim), std::pair(kKvHeads, kHeadDim),
                                     std::pair(kKvHeads, kValueDim)}) {
      inputs_.push_back(at::randn({row, heads, dim}).to(dtype()).index_select(0, source_));
    }
  }

  static at::ScalarType dtype() { return std::get<0>(GetParam()); }
  static Window window() { return std::get<1>(GetParam()); }

  // The output's rows of `weights` [rows, heads * dim] summed, differentiated.
  static std::vector<at::Tensor> Results(PackedAttention& attention,
                                         const std::vector<at::Tensor>& inputs,
                                         const at::Tensor& weights) {
    const at::AutoGradMode grad(true);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_(true));
    AttentionParams params;
    params.scale = 0.3;
    params.window = window();
    const at::Tensor out = attention.Forward(0, leaves[0], leaves[1], leaves[2], params);
    std::vector<at::Tensor> results =
        torch::autograd::grad({(out.to(at::kFloat) * weights).sum()}, leaves);
    results.insert(results.begin(), out.detach());
    return results;
  }

  static constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16, kValueDim = 24;
  // Prefixes that end within a panel and at its end, that are a whole sequence, and longer than a
  // block of keys; families of one and of several.
  const std::vector<Member> kMembers = {{9, 0},     {20, 7},    {7, 7},   {40, 8},
                                        {5, 0},     {33, 0},    {40, 16}, {300, 0},
                                        {290, 200}, {210, 130}, {1, 0},   {31, 1}};
  at::Tensor source_, kept_, prefixes_, whole_, shared_;
  std::vector<at::Tensor> inputs_;
};

TEST_P(SharedPrefix, GivesTheSameBitsAndTheSumOfTheGradients) {
  const at::Tensor weights = at::randn({source_.numel(), kHeads * kValueDim});
  PackedAttention whole(whole_);
  const std::vector<at::Tensor> expected = Results(whole, inputs_, weights);

  std::vector<at::Tensor> kept_inputs;
  for (const at::Tensor& x : inputs_) kept_inputs.push_back(x.index_select(0, kept_));
  PackedAttention shared(shared_, Implementation::kFast, prefixes_);
  // An output row that stands for several has their weights together.
  const at::Tensor summed = at::zeros_like(weights).index_add(0, source_, weights);
  const std::vector<at::Tensor> found = Results(shared, kept_inputs, summed.index_select(0, kept_));

  EXPECT_TRUE(at::equal(found[0], expected[0].index_select(0, kept_)));
  const double tolerance = dtype() == at::kFloat ? 1e-4 : 5e-2;
  for (size_t i = 1; i < expected.size(); ++i) {
    const at::Tensor wide = expected[i].to(at::kFloat);
    const at::Tensor sums = at::zeros_like(wide).index_add(0, source_, wide).index_select(0, kept_);
    EXPECT_TRUE(at::allclose(found[i].to(at::kFloat), sums, tolerance, tolerance))
        << "gradient " << i << ": " << (found[i].to(at::kFloat) - sums).abs().max().item<float>();
  }
}

// Windows that lie in the prefix, in part, and after it.
INSTANTIATE_TEST_SUITE_P(Types, SharedPrefix,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(Window(0), Window(6), Window(150),
                                                              Window(10, /*in_chunks=*/true),
                                                              Window(150, true))));

TEST(PackedAttention, PositionsStartAtZeroInEachSequence) {
  const at::Tensor positions = PackedPositions(CuSeqlens({2, 0, 3}));
  EXPECT_TRUE(at::equal(positions, at::tensor({0, 1, 0, 1, 2}, at::kLong)));
}

}  // namespace
}  // namespace tandem::model
