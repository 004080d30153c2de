// Gradients through the kernels of a GPU, which run on a CPU (emulated_gpu/model.cc), against those of
// ATen in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "common/model/activation.h"
#include "common/model/device_row_gradients.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/norm.h"
#include "common/model/numerics.h"
#include "common/model/rotary.h"
#include "tests/common/model/exact_numerics.h"
#include "tests/common/model/layer_kinds.h"
#include "tests/common/model/other_rotations.h"

namespace tandem::model {
namespace {

struct GradientCase {
  Numerics numerics;
  ExactShape shape;
};

// The loss's gradients are those of the CPU's passes, up to rounding.
class EmulatedGradients : public ::testing::TestWithParam<GradientCase> {
 protected:
  void SetUp() override {
    SetNumerics(GetParam().numerics);
    // A block's threads share one thread of the CPU.
    at::set_num_threads(1);
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(EmulatedGradients, AreThoseOfTheReference) {
  const Transformer model(GetParam().shape.Spec());
  std::vector<std::vector<at::Tensor>> gradients;
  for (const auto implementation :
       {PackedAttention::Implementation::kFast, PackedAttention::Implementation::kEager}) {
    // ATen's operations alone take float64.
    const bool is_reference = implementation == PackedAttention::Implementation::kEager;
    Arena arena(model.table(), at::kFloat);
    RandomInit(model.spec(), 3, arena);
    Arena wide(model.table(), at::kDouble);
    for (size_t i = 0; i < model.table().parameters().size(); ++i) {
      wide.Get(static_cast<int>(i)).copy_(arena.Get(static_cast<int>(i)));
    }
    Arena& params = is_reference ? wide : arena;
    params.RequireGrad();
    const at::Tensor cu_seqlens = at::tensor({0, 9, 30}, at::kLong);
    PackedAttention attention(cu_seqlens, implementation);
    const at::Tensor positions = PackedPositions(cu_seqlens);
    const Rotary rotary = model.MakeRotary(positions);
    const at::Tensor ids = at::arange(30, at::kLong) * 7 % model.spec().vocab_size;
    const at::Tensor x = model.Blocks(params, ids, positions, rotary, attention);
    const LogProbs out = model.HeadLogProbs(params, model.FinalNorm(params, x), ids.flip(0),
                                            at::full({30}, 0.8f).to(params.dtype()));
    (out.logprobs.sum() + 0.1 * out.entropy.sum()).backward();
    gradients.emplace_back();
    for (size_t i = 0; i < model.table().parameters().size(); ++i) {
      const at::Tensor& parameter = params.Get(static_cast<int>(i));
      // Experts without rows have none.
      gradients.back().push_back(parameter.grad().defined()
                                     ? parameter.grad().to(at::kDouble)
                                     : at::zeros_like(parameter, at::kDouble));
    }
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    const double scale = gradients[1][i].abs().max().item<double>();
    EXPECT_LE((gradients[0][i] - gradients[1][i]).abs().max().item<double>(), 1e-4 * scale)
        << model.table().parameters()[i].name;
  }
}

std::vector<GradientCase> GradientCases() {
  std::vector<GradientCase> cases;
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    cases.push_back({numerics, ExactShapes()[3]});
    cases.push_back({numerics, LinearShapes()[0]});
    for (const int i : {0, 1}) cases.push_back({numerics, LatentShapes()[i]});
    for (const auto* shapes : {&ExpertShapes(), &SharedShapes()}) {
      for (const ExactShape& shape : *shapes) cases.push_back({numerics, shape});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Numerics, EmulatedGradients, ::testing::ValuesIn(GradientCases()),
                         [](const ::testing::TestParamInfo<GradientCase>& info) {
                           const bool fast = info.param.numerics == Numerics::kFast;
                           return std::string(fast ? "fast_" : "exact_") + info.param.shape.name;
                         });

using Tensors = std::vector<at::Tensor>;

class EmulatedRowGradients : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::set_num_threads(1); }

  static at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes).to(GetParam()); }

  // Compares what `kernels` makes of the inputs, and its gradients, with what `reference` makes of
  // them in float64. Undefined inputs are left out of the gradients. wanted: the outputs that the
  // loss reads.
  template <typename Kernels, typename Reference>
  void Compare(const Tensors& inputs, const Kernels& kernels, const Reference& reference,
               const std::vector<size_t>& wanted = {0}) {
    const Tensors found = Pass(inputs, GetParam(), kernels, wanted);
    const Tensors expected = Pass(inputs, at::kDouble, reference, wanted);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
      if (!found[i].defined()) continue;
      ASSERT_EQ(found[i].scalar_type(), GetParam());
      const at::Tensor difference = found[i].to(at::kDouble) - expected[i];
      const double tolerance = GetParam() == at::kFloat ? 1e-5 : 1e-2;
      EXPECT_LE(difference.norm().item<double>(),
                tolerance * expected[i].norm().item<double>() + 1e-12)
          << "result " << i << " of outputs, then gradients";
      EXPECT_LE(difference.abs().max().item<double>(),
                tolerance * 4 * expected[i].abs().max().item<double>())
          << "result " << i << " of outputs, then gradients";
    }
  }

 private:
  template <typename Function>
  static Tensors Pass(const Tensors& inputs, at::ScalarType type, const Function& function,
                      const std::vector<size_t>& wanted) {
    Tensors given, leaves;
    for (const at::Tensor& input : inputs) {
      given.push_back(input.defined() ? input.to(type).detach().clone().requires_grad_() : input);
      if (input.defined()) leaves.push_back(given.back());
    }
    Tensors results = function(given);
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (const size_t i : wanted) {
      // Drawn for each element, and in the type of the output: gradients have it.
      const at::Tensor weight =
          at::sin(at::arange(results[i].numel(), at::kDouble) + 1.0 + i).view(results[i].sizes());
      loss = loss + (results[i].to(at::kDouble) * weight.to(GetParam()).to(at::kDouble)).sum();
    }
    for (at::Tensor& result : results) result = result.detach();
    for (const at::Tensor& grad : torch::autograd::grad({loss}, leaves, {}, std::nullopt, false,
                                                        /*allow_unused=*/true)) {
      results.push_back(grad);
    }
    return results;
  }
};

TEST_P(EmulatedRowGradients, AreTheKernels) {
  const at::Tensor x = Random({1, 8});
  ASSERT_TRUE(device::KernelsTake({x}));
  EXPECT_TRUE(device::NormGradientsTake());
  EXPECT_TRUE(device::ActivationGradientsTake({}));
  SetNumerics(Numerics::kExact);
  EXPECT_FALSE(device::NormGradientsTake());
  EXPECT_FALSE(device::ActivationGradientsTake({}));
  SetNumerics(Numerics::kFast);
}

TEST_P(EmulatedRowGradients, OfNorms) {
  // Sums of weights that fit into shared memory, and that do not; elements moved one by one; more
  // rows than blocks that sum.
  for (const auto& [rows, size] :
       {std::pair<int64_t, int64_t>{3, 1032}, {2, 10304}, {5, 7}, {1100, 16}}) {
    for (const NormSpec& spec : NormKinds()) {
      for (const bool with_delta : {false, true}) {
        const Norm norm = RandomNorm(spec, size, at::TensorOptions(GetParam()));
        const at::Tensor delta = with_delta ? Random({rows, size}) : at::Tensor();
        SCOPED_TRACE(::testing::Message()
                     << rows << " rows of " << size << ", kind " << static_cast<int>(spec.kind)
                     << ", delta " << with_delta);
        Compare(
            {Random({rows, size}), delta, norm.weight, norm.bias},
            [&spec](const Tensors& in) {
              const ResidualNorm out = AddNorm(in[0], in[1], {spec, in[2], in[3]});
              return Tensors{out.normed, out.residual};
            },
            [&spec](const Tensors& in) {
              const at::Tensor sum = in[1].defined() ? in[0] + in[1] : in[0];
              return Tensors{eager::Normalize(sum, {spec, in[2], in[3]}), sum};
            },
            with_delta ? std::vector<size_t>{0, 1} : std::vector<size_t>{0});
      }
    }
  }
}

TEST_P(EmulatedRowGradients, OfActivations) {
  for (const int64_t size : {2056, 16, 5}) {
    for (const ActivationFunction& function : ActivationKinds(at::TensorOptions(GetParam()))) {
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(function.activation) << ", gated " << function.gated);
      const auto activate = [&function](auto* call) {
        return [&function, call](const Tensors& in) {
          return Tensors{call(in[0], {function.activation, function.gated, in[1]})};
        };
      };
      Compare({Random({3, function.gated ? 2 * size : size}) * 4, function.alphas},
              activate(&Activate), activate(&eager::Activate));
    }
  }
}

TEST_P(EmulatedRowGradients, OfPlainRotations) {
  for (const QkvShape& shape : {QkvShape{14, 2, 64}, QkvShape{6, 2, 12, 20}}) {
    for (const bool with_norms : {false, true}) {
      // With norms, more heads than the warps that sum.
      const int64_t rows = with_norms ? 300 : 5;
      const RotaryAngles angles = RandomAngles(rows, shape.head_dim);
      const auto rotate = [&](auto* call) {
        return [&, call](const Tensors& in) {
          HeadRotation rotation{.angles = angles, .shape = shape};
          if (with_norms) rotation.norm.emplace();
          rotation.q_norm.weight = in[1];
          rotation.k_norm.weight = in[2];
          Qkv out = call(in[0], rotation);
          return Tensors{out.q, out.k, out.v};
        };
      };
      const at::Tensor q_norm = with_norms ? Random({shape.head_dim}) : at::Tensor();
      const at::Tensor k_norm = with_norms ? Random({shape.head_dim}) : at::Tensor();
      const int64_t width =
          (shape.num_heads + shape.num_kv_heads) * shape.head_dim + shape.v_size();
      const Tensors inputs = {Random({rows, width}), q_norm, k_norm};
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << shape.head_dim << ", norms " << with_norms);
      Compare(inputs, rotate(&RotateQkv), rotate(&eager::RotateQkv), {0, 1, 2});
      if (with_norms) continue;
      // Of some outputs only.
      Compare(inputs, rotate(&RotateQkv), rotate(&eager::RotateQkv), {1});
      Compare(inputs, rotate(&RotateQkv), rotate(&eager::RotateQkv), {0, 2});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedRowGradients, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

}  // namespace
}  // namespace tandem::model
