// The operations of a layer against their ATen references: values, and gradients through autograd,
// for sizes that fill whole registers and sizes that do not.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/model/eager_ops.h"
#include "common/model/head.h"
#include "common/model/linear.h"
#include "common/model/norm.h"
#include "common/model/rotary.h"
#include "common/model/swiglu.h"

namespace tandem::model {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

at::Tensor Normal(at::IntArrayRef sizes, double scale = 1.0) {
  return at::randn(sizes, at::kFloat) * scale;
}

double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Outputs and gradients of sum(outputs * fixed weights) with respect to every input.
Tensors Run(const Operation& operation, const Tensors& inputs, at::ScalarType dtype) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.to(dtype).detach().clone().requires_grad_(true));
  }
  Tensors results = operation(leaves);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor weight =
        at::cos(at::arange(results[i].numel(), at::kDouble) * (i + 1.0)).view(results[i].sizes());
    loss = loss + (results[i].to(at::kDouble) * weight).sum();
  }
  for (const at::Tensor& grad : torch::autograd::grad({loss}, leaves)) results.push_back(grad);
  return results;
}

// float32 against the float64 reference, bfloat16 against the float32 one on the same rounded
// inputs.
void ExpectSame(const Operation& operation, const Operation& reference, const Tensors& inputs) {
  at::NoGradGuard no_grad;
  const at::AutoGradMode grad(true);
  const Tensors exact = Run(reference, inputs, at::kDouble);
  const Tensors single = Run(operation, inputs, at::kFloat);
  ASSERT_EQ(exact.size(), single.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(exact[i].sizes(), single[i].sizes());
    EXPECT_LT(MaxDifference(exact[i], single[i]), 2e-5 * (1 + exact[i].abs().max().item<double>()))
        << "float32 result " << i;
  }
  Tensors rounded;
  for (const at::Tensor& input : inputs) rounded.push_back(input.to(at::kBFloat16).to(at::kFloat));
  const Tensors wide = Run(reference, rounded, at::kDouble);
  const Tensors half = Run(operation, inputs, at::kBFloat16);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_LT(MaxDifference(wide[i], half[i]), 2e-2 * (1 + wide[i].abs().max().item<double>()))
        << "bfloat16 result " << i;
  }
}

class OpsOfSize : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { at::manual_seed(GetParam()); }
};

TEST_P(OpsOfSize, RmsNormAndItsGradients) {
  ExpectSame([](const Tensors& in) -> Tensors { return {RmsNorm(in[0], in[1], 1e-5)}; },
             [](const Tensors& in) -> Tensors { return {eager::RmsNorm(in[0], in[1], 1e-5)}; },
             {Normal({131, GetParam()}), Normal({GetParam()})});
}

TEST_P(OpsOfSize, AddRmsNormAndItsGradients) {
  ExpectSame(
      [](const Tensors& in) -> Tensors {
        ResidualNorm out = AddRmsNorm(in[0], in[1], in[2], 1e-5);
        return {out.residual, out.normed};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {sum, eager::RmsNorm(sum, in[2], 1e-5)};
      },
      {Normal({5, GetParam()}), Normal({5, GetParam()}), Normal({GetParam()})});
}

TEST_P(OpsOfSize, AddRmsNormOfWhichOnlyOneResultIsUsed) {
  for (int used = 0; used < 2; ++used) {
    ExpectSame(
        [used](const Tensors& in) -> Tensors {
          ResidualNorm out = AddRmsNorm(in[0], in[1], in[2], 1e-5);
          return {used == 0 ? out.residual + in[2].sum() * 0 : out.normed};
        },
        [used](const Tensors& in) -> Tensors {
          const at::Tensor sum = in[0] + in[1];
          return {used == 0 ? sum + in[2].sum() * 0 : eager::RmsNorm(sum, in[2], 1e-5)};
        },
        {Normal({3, GetParam()}), Normal({3, GetParam()}), Normal({GetParam()})});
  }
}

// The trainer's sums are ATen's where they have gradients, a rollout's are ours.
TEST_P(OpsOfSize, ASumOfTheResidualStreamIsTheSameBitsWhoeverMakesIt) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = Normal({9, GetParam()}).to(type);
    const at::Tensor delta = Normal({9, GetParam()}).to(type);
    const at::Tensor weight = at::ones({GetParam()}, type);
    const at::Tensor expected = at::add(x, delta);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(Sum({x, delta}), expected));
    EXPECT_TRUE(at::equal(AddRmsNorm(x, delta, weight, 1e-5).residual, expected));
    EXPECT_TRUE(at::equal(Sum({x, {}}), x));
    const ResidualNorm nothing_added = AddRmsNorm(expected, {}, weight, 1e-5);
    EXPECT_TRUE(at::equal(nothing_added.residual, expected));
    EXPECT_TRUE(at::equal(nothing_added.normed, AddRmsNorm(x, delta, weight, 1e-5).normed));
  }
}

TEST_P(OpsOfSize, SwiGluAndItsGradients) {
  ExpectSame([](const Tensors& in) -> Tensors { return {SwiGlu(in[0])}; },
             [](const Tensors& in) -> Tensors { return {eager::SwiGlu(in[0])}; },
             {Normal({7, 2 * GetParam()}, 4.0)});
}

TEST_P(OpsOfSize, RotationWithAndWithoutNormsAndItsGradients) {
  const QkvShape shape{6, 2, 2 * GetParam()};
  const int64_t rows = 9;
  const at::Tensor angles = Normal({rows, GetParam()});
  const auto rotary = [&](const at::Tensor& like) -> Rotary {
    const at::ScalarType type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return {angles.cos().to(type), angles.sin().to(type)};
  };
  const at::Tensor qkv = Normal({rows, 10 * shape.head_dim});
  ExpectSame(
      [&](const Tensors& in) -> Tensors {
        Qkv out = RotateQkv(in[0], {rotary(in[0]), shape, std::nullopt, std::nullopt, 1e-5});
        return {out.q, out.k, out.v};
      },
      [&](const Tensors& in) -> Tensors {
        Qkv out = eager::RotateQkv(in[0], rotary(in[0]), shape, std::nullopt, std::nullopt, 1e-5);
        return {out.q, out.k, out.v};
      },
      {qkv});
  ExpectSame(
      [&](const Tensors& in) -> Tensors {
        Qkv out = RotateQkv(in[0], {rotary(in[0]), shape, in[1], in[2], 1e-5});
        return {out.q, out.k, out.v};
      },
      [&](const Tensors& in) -> Tensors {
        Qkv out = eager::RotateQkv(in[0], rotary(in[0]), shape, in[1], in[2], 1e-5);
        return {out.q, out.k, out.v};
      },
      {qkv, Normal({shape.head_dim}), Normal({shape.head_dim})});
}

TEST_P(OpsOfSize, LinearWithAndWithoutBiasAndItsGradients) {
  for (int64_t rows : {1, 5, 131}) {
    ExpectSame([](const Tensors& in) -> Tensors { return {Linear(in[0], in[1])}; },
               [](const Tensors& in) -> Tensors { return {at::linear(in[0], in[1])}; },
               {Normal({rows, 37}), Normal({GetParam(), 37}, 0.2)});
    ExpectSame([](const Tensors& in) -> Tensors { return {Linear(in[0], in[1], in[2])}; },
               [](const Tensors& in) -> Tensors { return {at::linear(in[0], in[1], in[2])}; },
               {Normal({rows, GetParam()}), Normal({19, GetParam()}, 0.2), Normal({19})});
  }
}

// log_softmax over the whole matrix of logits.
Tensors PlainLogProbs(const Tensors& in, const at::Tensor& targets,
                      const at::Tensor& temperatures) {
  const at::Tensor logits = at::linear(in[0], in[1]) / temperatures.unsqueeze(1);
  const at::Tensor log_p = at::log_softmax(logits, -1);
  return {log_p.gather(1, targets.unsqueeze(1)).squeeze(1), -(log_p.exp() * log_p).sum(-1)};
}

TEST_P(OpsOfSize, HeadLogProbsAndEntropyAndTheirGradients) {
  const int64_t vocab = GetParam() + 1;
  // The largest is cut in several chunks of rows.
  const int64_t rows = GetParam() > 1000 ? 1300 : 70;
  const at::Tensor targets = at::randint(vocab, {rows}, at::kLong);
  const at::Tensor temperatures = at::rand({rows}) + 0.5;
  ExpectSame(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor scales =
            temperatures.to(in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
        LogProbs out = ChunkedLogProbs(in[0], in[1], targets, scales);
        return {out.logprobs, out.entropy};
      },
      [&](const Tensors& in) -> Tensors { return PlainLogProbs(in, targets, temperatures); },
      {Normal({rows, 24}), Normal({vocab, 24}, 0.5)});
}

INSTANTIATE_TEST_SUITE_P(Sizes, OpsOfSize, ::testing::Values(1, 3, 8, 16, 33, 64, 1100),
                         [](const ::testing::TestParamInfo<int64_t>& info) {
                           return std::to_string(info.param);
                         });

TEST(Head, KeepsNothingWhereNoGradientIsWanted) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = Normal({5, 8}).requires_grad_(true);
  const LogProbs out =
      ChunkedLogProbs(hidden, Normal({11, 8}), at::zeros({5}, at::kLong), at::ones({5}));
  EXPECT_FALSE(out.logprobs.requires_grad());
}

TEST(Head, SumsTheSquaresOfTheProbabilitiesWhenAsked) {
  const int64_t rows = 40, vocab = 300;
  const at::Tensor hidden = Normal({rows, 24}), weight = Normal({vocab, 24}, 0.5);
  const at::Tensor targets = at::randint(vocab, {rows}, at::kLong);
  const at::Tensor temperatures = at::rand({rows}) + 0.5;

  const LogProbs plain = ChunkedLogProbs(hidden, weight, targets, temperatures);
  const LogProbs out = ChunkedLogProbsAndSquares(hidden, weight, targets, temperatures);

  EXPECT_FALSE(plain.sum_pi_squared.defined());
  EXPECT_TRUE(at::equal(out.logprobs, plain.logprobs));
  EXPECT_TRUE(at::equal(out.entropy, plain.entropy));
  const at::Tensor expected =
      (hidden.to(at::kDouble).mm(weight.to(at::kDouble).t()) / temperatures.unsqueeze(1))
          .softmax(1)
          .square()
          .sum(1);
  EXPECT_LT((out.sum_pi_squared / expected - 1).abs().max().item<double>(), 1e-5);
}

TEST(Head, UnlikelyTokensHaveFiniteLogProbs) {
  at::Tensor hidden = at::full({1, 1}, 1000.0f);
  at::Tensor weight = at::tensor({1.0f, -1.0f, 0.0f}).view({3, 1});
  const LogProbs out = ChunkedLogProbs(hidden, weight, at::full({1}, 1, at::kLong), at::ones({1}));
  EXPECT_FLOAT_EQ(out.logprobs.item<float>(), -2000.0f);
  EXPECT_FLOAT_EQ(out.entropy.item<float>(), 0.0f);
}

}  // namespace
}  // namespace tandem::model
