// The operations of a layer against their ATen references: values, and gradients through autograd,
// for sizes that fill whole registers and sizes that do not.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/activation.h"
#include "common/model/eager_ops.h"
#include "common/model/head.h"
#include "common/model/linear.h"
#include "common/model/norm.h"
#include "common/model/rotary.h"
#include "tests/common/model/layer_kinds.h"

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

// The parameters of a norm as inputs of an operation; NormFrom() finds them from `first` on.
Tensors NormParametersOf(const NormSpec& spec, int64_t size) {
  const Norm norm = RandomNorm(spec, size, at::kFloat);
  Tensors parameters;
  if (spec.weight) parameters.push_back(norm.weight);
  if (spec.bias) parameters.push_back(norm.bias);
  return parameters;
}

Norm NormFrom(const NormSpec& spec, const Tensors& in, size_t first) {
  Norm norm{spec, {}, {}};
  if (spec.weight) norm.weight = in[first++];
  if (spec.bias) norm.bias = in[first];
  return norm;
}

TEST_P(OpsOfSize, NormsAndTheirGradients) {
  for (const NormSpec& spec : NormKinds()) {
    // The deviation of one element, or of a few that happen to be close, has no digits.
    if (spec.kind == NormKind::kLayer && GetParam() < 8) continue;
    Tensors inputs = NormParametersOf(spec, GetParam());
    inputs.insert(inputs.begin(), Normal({131, GetParam()}) + 0.5);
    ExpectSame(
        [&](const Tensors& in) -> Tensors { return {Normalize(in[0], NormFrom(spec, in, 1))}; },
        [&](const Tensors& in) -> Tensors {
          return {eager::Normalize(in[0], NormFrom(spec, in, 1))};
        },
        inputs);
  }
}

// The sum of two, rounded to bfloat16, would have a norm of its own if it were close to zero.
at::Tensor AwayFromZero(at::IntArrayRef sizes) {
  return sizes.back() < 8 ? at::rand(sizes) + 1.0 : Normal(sizes);
}

TEST_P(OpsOfSize, AddNormAndItsGradients) {
  for (const NormSpec& spec : NormKinds()) {
    if (spec.kind == NormKind::kLayer && GetParam() < 8) continue;
    Tensors inputs = NormParametersOf(spec, GetParam());
    for (int i = 0; i < 2; ++i) inputs.insert(inputs.begin(), AwayFromZero({5, GetParam()}));
    ExpectSame(
        [&](const Tensors& in) -> Tensors {
          ResidualNorm out = AddNorm(in[0], in[1], NormFrom(spec, in, 2));
          return {out.residual, out.normed};
        },
        [&](const Tensors& in) -> Tensors {
          const at::Tensor sum = in[0] + in[1];
          return {sum, eager::Normalize(sum, NormFrom(spec, in, 2))};
        },
        inputs);
  }
}

TEST_P(OpsOfSize, AddNormOfWhichOnlyOneResultIsUsed) {
  const NormSpec spec{.eps = 1e-5};
  for (int used = 0; used < 2; ++used) {
    ExpectSame(
        [used, spec](const Tensors& in) -> Tensors {
          ResidualNorm out = AddNorm(in[0], in[1], {spec, in[2], {}});
          return {used == 0 ? out.residual + in[2].sum() * 0 : out.normed};
        },
        [used, spec](const Tensors& in) -> Tensors {
          const at::Tensor sum = in[0] + in[1];
          return {used == 0 ? sum + in[2].sum() * 0 : eager::Normalize(sum, {spec, in[2], {}})};
        },
        {Normal({3, GetParam()}), Normal({3, GetParam()}), Normal({GetParam()})});
  }
}

// A row is on its own, in any batch.
TEST_P(OpsOfSize, ARowHasTheSameBitsInEveryBatch) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = Normal({9, GetParam()}).to(type);
    for (const NormSpec& spec : NormKinds()) {
      const Norm norm = RandomNorm(spec, GetParam(), at::TensorOptions(type));
      EXPECT_TRUE(
          at::equal(Normalize(x, norm).narrow(0, 6, 2), Normalize(x.narrow(0, 6, 2), norm)));
    }
    for (const ActivationFunction& function : ActivationKinds(at::TensorOptions(type))) {
      const at::Tensor in = function.gated ? at::cat({x, x}, 1) : x;
      EXPECT_TRUE(at::equal(Activate(in, function).narrow(0, 6, 2),
                            Activate(in.narrow(0, 6, 2), function)));
    }
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
    const Norm norm{NormSpec(), weight, {}};
    EXPECT_TRUE(at::equal(AddNorm(x, delta, norm).residual, expected));
    EXPECT_TRUE(at::equal(Sum({x, {}}), x));
    const ResidualNorm nothing_added = AddNorm(expected, {}, norm);
    EXPECT_TRUE(at::equal(nothing_added.residual, expected));
    EXPECT_TRUE(at::equal(nothing_added.normed, AddNorm(x, delta, norm).normed));
  }
}

TEST_P(OpsOfSize, ActivationsAndTheirGradients) {
  for (const ActivationFunction& function : ActivationKinds(at::kFloat)) {
    const auto with = [&](const Tensors& in) -> ActivationFunction {
      return {function.activation, function.gated, in.size() > 1 ? in[1] : at::Tensor()};
    };
    Tensors inputs{Normal({7, function.gated ? 2 * GetParam() : GetParam()}, 4.0)};
    if (function.alphas.defined()) inputs.push_back(function.alphas);
    ExpectSame([&](const Tensors& in) -> Tensors { return {Activate(in[0], with(in))}; },
               [&](const Tensors& in) -> Tensors { return {eager::Activate(in[0], with(in))}; },
               inputs);
  }
}

// Far out, where exponentials overflow.
TEST(Activations, OfLargeNumbersAreFinite) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::tensor({-1e4f, -90.0f, -20.0f, 0.0f, 20.0f, 90.0f, 1e4f}).view({1, 7});
  for (const ActivationFunction& function : ActivationKinds(at::kFloat)) {
    if (function.gated) continue;
    const at::Tensor expected = eager::Activate(x.to(at::kDouble), function);
    EXPECT_TRUE(at::allclose(Activate(x, function).to(at::kDouble), expected, 1e-5, 1e-6))
        << static_cast<int>(function.activation);
  }
}

TEST_P(OpsOfSize, RotationWithAndWithoutNormsAndItsGradients) {
  const QkvShape shape{6, 2, 2 * GetParam()};
  const int64_t rows = 9;
  const at::Tensor angles = Normal({rows, GetParam()});
  const auto rotation = [&](const Tensors& in) {
    const at::ScalarType type = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    HeadRotation of{.angles = {angles.cos().to(type), angles.sin().to(type)}, .shape = shape};
    if (in.size() > 1) {
      of.norm = {.norm = {.eps = 1e-5}};
      of.q_norm.weight = in[1];
      of.k_norm.weight = in[2];
    }
    return of;
  };
  const at::Tensor qkv = Normal({rows, 10 * shape.head_dim});
  for (const Tensors& inputs :
       {Tensors{qkv}, Tensors{qkv, Normal({shape.head_dim}), Normal({shape.head_dim})}}) {
    ExpectSame(
        [&](const Tensors& in) -> Tensors {
          Qkv out = RotateQkv(in[0], rotation(in));
          return {out.q, out.k, out.v};
        },
        [&](const Tensors& in) -> Tensors {
          Qkv out = eager::RotateQkv(in[0], rotation(in));
          return {out.q, out.k, out.v};
        },
        inputs);
  }
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
Tensors PlainLogProbs(const at::Tensor& hidden, const LmHead& head, const at::Tensor& targets,
                      const at::Tensor& temperatures) {
  at::Tensor logits = at::linear(hidden, head.weight);
  if (head.bias.defined()) logits = logits + head.bias;
  logits = logits * head.scale;
  if (head.softcap > 0) logits = at::tanh(logits / head.softcap) * head.softcap;
  logits = logits / temperatures.unsqueeze(1);
  const at::Tensor log_p = at::log_softmax(logits, -1);
  return {log_p.gather(1, targets.unsqueeze(1)).squeeze(1), -(log_p.exp() * log_p).sum(-1)};
}

TEST_P(OpsOfSize, HeadLogProbsAndEntropyAndTheirGradients) {
  const int64_t vocab = GetParam() + 1;
  // The largest is cut in several chunks of rows.
  const int64_t rows = GetParam() > 1000 ? 1300 : 70;
  const at::Tensor targets = at::randint(vocab, {rows}, at::kLong);
  const at::Tensor temperatures = at::rand({rows}) + 0.5;
  for (const auto& [scale, softcap] : {std::pair(1.0, 0.0), {0.7, 0.0}, {1.3, 2.5}}) {
    for (const bool has_bias : {false, true}) {
      const auto head = [&](const Tensors& in) -> LmHead {
        return {in[1], has_bias ? in[2] : at::Tensor(), scale, softcap};
      };
      Tensors inputs{Normal({rows, 24}), Normal({vocab, 24}, 0.5)};
      if (has_bias) inputs.push_back(Normal({vocab}));
      ExpectSame(
          [&](const Tensors& in) -> Tensors {
            LogProbs out = ChunkedLogProbs(in[0], head(in), targets, temperatures);
            return {out.logprobs, out.entropy};
          },
          [&](const Tensors& in) -> Tensors {
            return PlainLogProbs(in[0], head(in), targets, temperatures);
          },
          inputs);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OpsOfSize, ::testing::Values(1, 3, 8, 16, 33, 64, 1100),
                         [](const ::testing::TestParamInfo<int64_t>& info) {
                           return std::to_string(info.param);
                         });

TEST(Head, KeepsNothingWhereNoGradientIsWanted) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = Normal({5, 8}).requires_grad_(true);
  const LogProbs out = ChunkedLogProbs(hidden, {.weight = Normal({11, 8})},
                                       at::zeros({5}, at::kLong), at::ones({5}));
  EXPECT_FALSE(out.logprobs.requires_grad());
}

TEST(Head, SumsTheSquaresOfTheProbabilitiesWhenAsked) {
  const int64_t rows = 40, vocab = 300;
  const at::Tensor hidden = Normal({rows, 24}), weight = Normal({vocab, 24}, 0.5);
  const at::Tensor targets = at::randint(vocab, {rows}, at::kLong);
  const at::Tensor temperatures = at::rand({rows}) + 0.5;

  const LogProbs plain = ChunkedLogProbs(hidden, {weight}, targets, temperatures);
  const LogProbs out = ChunkedLogProbsAndSquares(hidden, {weight}, targets, temperatures);

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

// What the sampler reads are the logits that log-probs are of.
TEST(Head, LogitsAreThoseOfTheLogProbs) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = Normal({7, 24});
  const at::Tensor targets = at::randint(33, {7}, at::kLong);
  const LmHead head{Normal({33, 24}), Normal({33}), 0.6, 4.0};

  const at::Tensor logits = HeadLogits(hidden, head);

  const at::Tensor raw =
      at::linear(hidden.to(at::kDouble), head.weight.to(at::kDouble), head.bias.to(at::kDouble));
  EXPECT_TRUE(at::allclose(logits.to(at::kDouble), at::tanh(raw * 0.6 / 4.0) * 4.0, 1e-5, 1e-5));
  const at::Tensor expected =
      at::log_softmax(logits, -1).gather(1, targets.unsqueeze(1)).squeeze(1);
  const LogProbs out = ChunkedLogProbs(hidden, head, targets, at::ones({7}));
  EXPECT_TRUE(at::allclose(out.logprobs, expected, 1e-5, 1e-5));
}

TEST(Head, UnlikelyTokensHaveFiniteLogProbs) {
  at::Tensor hidden = at::full({1, 1}, 1000.0f);
  at::Tensor weight = at::tensor({1.0f, -1.0f, 0.0f}).view({3, 1});
  const LogProbs out =
      ChunkedLogProbs(hidden, {weight}, at::full({1}, 1, at::kLong), at::ones({1}));
  EXPECT_FLOAT_EQ(out.logprobs.item<float>(), -2000.0f);
  EXPECT_FLOAT_EQ(out.entropy.item<float>(), 0.0f);
}

}  // namespace
}  // namespace tandem::model
