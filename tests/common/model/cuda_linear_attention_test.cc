// Linear attention on a GPU: results and gradients against plain ATen in float64, and a small model with it
// against the same model on the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/delta_attention.h"
#include "common/model/device_delta_attention.h"
#include "common/model/numerics.h"
#include "common/model/packed_attention.h"
#include "common/model/random_init.h"
#include "common/model/transformer.h"
#include "tests/common/model/delta_cases.h"
#include "tests/common/model/exact_shapes.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

const at::Device kGpu(at::kCUDA, 0);

std::vector<DeltaCase> Cases() {
  std::vector<DeltaCase> cases = DeltaCases();
  cases.push_back({"LargestHeads", DeltaSpecOf(1, 1, 256, 256, 2), {67, 3}});
  cases.push_back({"HeadsOfQwen", DeltaSpecOf(2, 4, 128, 128, 4), {3, 130, 64, 200}});
  return cases;
}

class CudaLinearAttention : public ::testing::TestWithParam<DeltaCase> {
 protected:
  void SetUp() override {
    TANDEM_SKIP_WITHOUT_CUDA();
    at::manual_seed(7);
  }

  static at::Tensor Kernels(const DeltaTensorList& in) {
    EXPECT_TRUE(device::DeltaAttentionTakes(GetParam().spec, TensorsOf(in)));
    return DeltaAttention(GetParam().spec, TensorsOf(in), EndsOf(GetParam().lengths));
  }
  static at::Tensor Reference(const DeltaTensorList& in) {
    return eager::DeltaAttention(GetParam().spec, TensorsOf(in), EndsOf(GetParam().lengths));
  }
};

TEST_P(CudaLinearAttention, AgreesWithAtenAndItsGradients) {
  const DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kDouble);
  ExpectDeltaClose(DeltaResults(inputs, at::kFloat, Kernels, kGpu),
                   DeltaResults(inputs, at::kDouble, Reference), 1e-5);
}

TEST_P(CudaLinearAttention, AgreesInBfloat16) {
  const DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kBFloat16);
  ExpectDeltaClose(DeltaResults(inputs, at::kBFloat16, Kernels, kGpu),
                   DeltaResults(inputs, at::kDouble, Reference), 1e-2);
}

TEST_P(CudaLinearAttention, HasTheSameBitsAgainAndWithoutGradients) {
  const DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kFloat);
  const DeltaTensorList first = DeltaResults(inputs, at::kFloat, Kernels, kGpu);
  const DeltaTensorList again = DeltaResults(inputs, at::kFloat, Kernels, kGpu);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], again[i])) << i;
  DeltaTensorList there;
  for (const at::Tensor& x : inputs) there.push_back(x.to(kGpu));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(Kernels(there).cpu(), first[0]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLinearAttention, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// The loss's gradients of a whole model, on `device`, in the order of its parameters.
std::vector<at::Tensor> GradientsOn(at::Device device, const Transformer& model) {
  Arena arena(model.table(), at::kFloat);
  RandomInit(model.spec(), 3, arena);
  Arena params(model.table(), at::kFloat, device);
  params.CopyFrom(arena);
  params.RequireGrad();
  const at::Tensor cu_seqlens = at::tensor({0, 9, 90}, at::kLong);
  PackedAttention attention(cu_seqlens);
  const at::Tensor positions = PackedPositions(cu_seqlens).to(device);
  const Rotary rotary = model.MakeRotary(positions);
  const at::Tensor ids = at::arange(90, at::kLong) * 7 % model.spec().vocab_size;
  at::Tensor x = model.Embed(params, ids.to(device), positions);
  for (int64_t layer = 0; layer < model.spec().num_layers(); ++layer) {
    x = model.Block(params, layer, x, rotary, attention);
  }
  const LogProbs out = model.HeadLogProbs(params, model.FinalNorm(params, x),
                                          ids.flip(0).to(device), at::full({90}, 0.8f).to(device));
  (out.logprobs.sum() + 0.1 * out.entropy.sum()).backward();
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < model.table().parameters().size(); ++i) {
    gradients.push_back(params.Get(static_cast<int>(i)).grad().to(at::kCPU, at::kDouble));
  }
  return gradients;
}

TEST(CudaLinearModel, GradientsAreTheCpus) {
  TANDEM_SKIP_WITHOUT_CUDA();
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    SetNumerics(numerics);
    for (const ExactShape& shape : LinearShapes()) {
      const Transformer model(shape.Spec());
      const std::vector<at::Tensor> expected = GradientsOn(at::kCPU, model);
      const std::vector<at::Tensor> found = GradientsOn(kGpu, model);
      for (size_t i = 0; i < expected.size(); ++i) {
        const double scale = expected[i].abs().max().item<double>();
        EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-3 * scale)
            << shape.name << ", " << (numerics == Numerics::kFast ? "fast, " : "exact, ")
            << model.table().parameters()[i].name;
      }
    }
  }
  SetNumerics(Numerics::kFast);
}

}  // namespace
}  // namespace tandem::model
