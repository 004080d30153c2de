// Norm, rotary embedding, activation, products and log-probs by CUDA kernels, against the CPU's or float64.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/activation.h"
#include "common/model/device_row_ops.h"
#include "common/model/head.h"
#include "common/model/linear.h"
#include "common/model/norm.h"
#include "common/model/rotary.h"
#include "tests/common/model/layer_kinds.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

const at::Device kGpu(at::kCUDA, 0);

class CudaRowOps : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }

  at::Tensor Random(std::vector<int64_t> sizes) { return at::randn(sizes).to(GetParam()); }

  static Norm OnGpu(const Norm& norm) {
    const auto there = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(kGpu) : tensor;
    };
    return {norm.spec, there(norm.weight), there(norm.bias)};
  }

  // A last bit of bfloat16, or a few of float32.
  void ExpectSame(const at::Tensor& found, const at::Tensor& expected) {
    ASSERT_TRUE(found.is_cuda());
    ASSERT_EQ(found.scalar_type(), expected.scalar_type());
    ASSERT_EQ(found.sizes(), expected.sizes());
    const double tolerance = GetParam() == at::kFloat ? 2e-6 : 1e-2;
    const at::Tensor here = found.cpu().to(at::kDouble).flatten();
    const at::Tensor wanted = expected.to(at::kDouble).flatten();
    const at::Tensor off = (here - wanted).abs() / (1 + wanted.abs());
    const int64_t worst = off.argmax().item<int64_t>();
    EXPECT_TRUE(at::allclose(here, wanted, tolerance, tolerance))
        << found.sizes() << ": element " << worst << " is " << here[worst].item<double>()
        << ", expected " << wanted[worst].item<double>();
  }

  const c10::InferenceMode inference_;
};

TEST_P(CudaRowOps, TakesWhatInferenceComputes) {
  const at::Tensor x = Random({2, 8}).to(kGpu);
  EXPECT_TRUE(device::KernelsTake({x, x}));
  EXPECT_FALSE(device::KernelsTake({x, x.to(at::kDouble)}));
  EXPECT_FALSE(device::KernelsTake({x, x.cpu()}));
}

TEST_P(CudaRowOps, NormsAreTheCpus) {
  for (const int64_t size : {896, 1536, 3584, 48, 7, 100}) {
    for (const int64_t rows : {1, 5, 300}) {
      const at::Tensor x = Random({rows, size});
      const at::Tensor delta = Random({rows, size});
      for (const NormSpec& spec : NormKinds()) {
        const Norm norm = RandomNorm(spec, size, at::TensorOptions(GetParam()));
        const Norm there = OnGpu(norm);
        ExpectSame(Normalize(x.to(kGpu), there), Normalize(x, norm));
        const ResidualNorm found = AddNorm(x.to(kGpu), delta.to(kGpu), there);
        const ResidualNorm expected = AddNorm(x, delta, norm);
        ExpectSame(found.residual, expected.residual);
        ExpectSame(found.normed, expected.normed);
      }
    }
  }
}

TEST_P(CudaRowOps, ActivationsAreTheCpus) {
  for (const int64_t size : {4864, 18944, 80, 5}) {
    for (const ActivationFunction& function : ActivationKinds(at::TensorOptions(GetParam()))) {
      const at::Tensor in = Random({33, function.gated ? 2 * size : size}) * 4;
      ActivationFunction there = function;
      if (there.alphas.defined()) there.alphas = there.alphas.to(kGpu);
      ExpectSame(Activate(in.to(kGpu), there), Activate(in, function));
    }
  }
}

TEST_P(CudaRowOps, RotatedHeadsAreTheCpus) {
  for (const QkvShape& shape : {QkvShape{14, 2, 64}, QkvShape{28, 4, 128}, QkvShape{6, 2, 12}}) {
    for (const bool with_norms : {false, true}) {
      const int64_t rows = 37;
      const at::Tensor frequencies =
          at::pow(10000.0, -at::arange(shape.head_dim / 2).to(at::kFloat) * 2 / shape.head_dim)
              .to(at::kFloat);
      const at::Tensor positions = at::randint(0, 4000, {rows}, at::kLong);
      const at::Tensor qkv =
          Random({rows, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim});
      const RotaryAngles rotary = AnglesOf(positions, frequencies);
      const RotaryAngles rotary_there = AnglesOf(positions.to(kGpu), frequencies);
      HeadRotation here{.angles = rotary, .shape = shape};
      HeadRotation there{.angles = rotary_there, .shape = shape};
      if (with_norms) {
        here.norm = there.norm = QkNormSpec{};
        here.q_norm.weight = Random({shape.head_dim});
        here.k_norm.weight = Random({shape.head_dim});
        there.q_norm.weight = here.q_norm.weight.to(kGpu);
        there.k_norm.weight = here.k_norm.weight.to(kGpu);
      }
      EXPECT_TRUE(at::allclose(rotary_there.cos.cpu(), rotary.cos, 1e-6, 1e-6));
      EXPECT_TRUE(at::allclose(rotary_there.sin.cpu(), rotary.sin, 1e-6, 1e-6));
      // In float64: the CPU's kernel rounds a normed head before it is rotated, too.
      const auto wide = [](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.to(at::kDouble) : tensor;
      };
      HeadRotation exact = here;
      exact.angles.cos = wide(rotary.cos);
      exact.angles.sin = wide(rotary.sin);
      exact.q_norm.weight = wide(here.q_norm.weight);
      exact.k_norm.weight = wide(here.k_norm.weight);
      const Qkv expected = RotateQkv(wide(qkv), exact);
      const Qkv found = RotateQkv(qkv.to(kGpu), there);
      ExpectSame(found.q, expected.q.to(GetParam()));
      ExpectSame(found.k, expected.k.to(GetParam()));
      ExpectSame(found.v, expected.v.to(GetParam()));
    }
  }
}

// Of decoding: against float64 on the same GPU, with ATen's products for what ours do not take.
TEST_P(CudaRowOps, ProductsOfFewRowsAreThePlainOnes) {
  const at::TensorOptions on_gpu = at::TensorOptions(kGpu).dtype(GetParam());
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
           {896, 1152}, {4864, 896}, {3584, 4608}, {18944, 3584}, {896, 151936}, {100, 33}}) {
    const at::Tensor weight = at::randn({out, in}, on_gpu), bias = at::randn({out}, on_gpu);
    for (const int64_t rows : {4, 1, 2, 3, 5}) {
      const at::Tensor x = at::randn({5, in}, on_gpu).narrow(0, 0, rows).contiguous();
      EXPECT_EQ(device::FewRowsProductTakes(x, weight, bias),
                GetParam() == at::kBFloat16 && rows <= 2 && in % 8 == 0);
      const at::Tensor expected = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
      const double sums = 2e-6 * std::sqrt(static_cast<double>(in));
      const double rounding = GetParam() == at::kFloat ? 2e-5 : 1.0 / 128;
      EXPECT_TRUE(at::allclose(Linear(x, weight, bias).to(at::kDouble),
                               expected + bias.to(at::kDouble), rounding,
                               GetParam() == at::kFloat ? 100 * sums : 1e-2))
          << rows << " x " << in << " x " << out;
      if (GetParam() == at::kBFloat16) {
        const at::Tensor logits = HeadLogits(x, LmHead{weight});
        EXPECT_EQ(logits.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::allclose(logits.to(at::kDouble), expected, 2e-5, 100 * sums))
            << rows << " x " << in << " x " << out;
      }
    }
  }
}

TEST_P(CudaRowOps, LogProbsAreTheCpus) {
  const int64_t vocab = 5003;
  const at::Tensor hidden = Random({70, 64});
  const at::Tensor weight = Random({vocab, 64});
  const at::Tensor targets = at::randint(0, vocab, {70}, at::kLong);
  const at::Tensor temperatures = at::rand({70}) + 0.5;
  const LogProbs expected = ChunkedLogProbs(hidden, {.weight = weight}, targets, temperatures);
  const LogProbs found = ChunkedLogProbs(hidden.to(kGpu), {.weight = weight.to(kGpu)},
                                         targets.to(kGpu), temperatures.to(kGpu));
  // Logits are float32 on both, also of bfloat16.
  const double tolerance = 1e-4;
  EXPECT_TRUE(at::allclose(found.logprobs.cpu(), expected.logprobs, tolerance, tolerance));
  EXPECT_TRUE(at::allclose(found.entropy.cpu(), expected.entropy, tolerance, tolerance));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRowOps, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

}  // namespace
}  // namespace tandem::model
