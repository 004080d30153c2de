// Attention of the trainer on a GPU, forward and backward, against float64 on the CPU, and the memory
// that it takes.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>
#include <string>
#include <vector>

#include "common/model/eager_ops.h"
#include "common/model/numerics.h"
#include "common/model/packed_attention.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

const at::Device kGpu(at::kCUDA, 0);

struct Case {
  std::string name;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  std::vector<int64_t> lengths;
  AttentionParams params;
  bool sinks = false;
  bool sees_ahead = false;  // all but the first and the last token of a sequence see one another
};

std::vector<Case> Cases() {
  const std::vector<int64_t> lengths = {1, 17, 300, 64, 0, 131};
  std::vector<Case> cases = {{"heads14_kv2_dim64", 14, 2, 64, lengths},
                             {"heads8_kv8_dim128", 8, 8, 128, lengths},
                             {"heads4_kv1_dim256", 4, 1, 256, lengths},
                             {"heads6_kv3_dim40", 6, 3, 40, lengths},
                             {"heads6_kv3_dim20", 6, 3, 20, lengths},
                             {"window", 8, 2, 64, lengths},
                             {"softcap", 8, 2, 64, lengths},
                             {"alibi", 8, 2, 64, lengths},
                             {"sinks", 8, 2, 64, lengths},
                             {"ahead", 8, 2, 64, lengths},
                             {"ahead_in_window", 4, 2, 256, lengths}};
  for (Case& a_case : cases) a_case.params.scale = 0.15;
  cases[5].params.window = 33;
  cases[6].params.softcap = 5.0;
  cases[7].params.alibi = {1.0, 8, 0};
  cases[8].sinks = true;
  cases[9].sees_ahead = cases[10].sees_ahead = true;
  cases[10].params.window = 33;
  return cases;
}

std::vector<at::Tensor> Attend(const Case& a_case, std::vector<at::Tensor> inputs, bool on_gpu) {
  std::vector<int64_t> starts = {0};
  for (const int64_t length : a_case.lengths) starts.push_back(starts.back() + length);
  const at::Tensor cu_seqlens = at::tensor(starts, at::kLong);
  std::vector<int64_t> ends;
  for (const int64_t length : a_case.lengths) {
    for (int64_t t = 0; t < length; ++t) {
      ends.push_back(t == 0 || t + 1 == length ? t + 1 : length - 1);
    }
  }
  const at::Tensor seen_ends = a_case.sees_ahead ? at::tensor(ends, at::kLong) : at::Tensor();
  const at::AutoGradMode grad(true);
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  AttentionParams params = a_case.params;
  if (a_case.sinks) params.sinks = inputs[3];
  at::Tensor out;
  if (on_gpu) {
    PackedAttention attention(cu_seqlens, PackedAttention::Implementation::kFast, /*prefixes=*/{},
                              seen_ends);
    out = attention.Forward(0, inputs[0], inputs[1], inputs[2], params);
  } else {
    out = eager::PackedAttention(inputs[0], inputs[1], inputs[2], cu_seqlens, params, seen_ends);
  }
  const at::Tensor weight =
      at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes()).to(out.device());
  std::vector<at::Tensor> results = {out.detach()};
  for (const at::Tensor& g :
       torch::autograd::grad({(out.to(at::kDouble) * weight).sum()}, inputs)) {
    results.push_back(g);
  }
  return results;
}

class CudaPackedAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }

  void Compare(at::ScalarType type, double tolerance) {
    const Case& a_case = GetParam();
    at::manual_seed(5);
    const int64_t tokens =
        std::accumulate(a_case.lengths.begin(), a_case.lengths.end(), int64_t{0});
    std::vector<at::Tensor> inputs = {at::randn({tokens, a_case.num_heads, a_case.head_dim}),
                                      at::randn({tokens, a_case.num_kv_heads, a_case.head_dim}),
                                      at::randn({tokens, a_case.num_kv_heads, a_case.head_dim})};
    if (a_case.sinks) inputs.push_back(at::randn({a_case.num_heads}));
    std::vector<at::Tensor> here, there;
    for (const at::Tensor& input : inputs) {
      here.push_back(input.to(type).to(at::kDouble));
      there.push_back(input.to(type).to(kGpu));
    }
    const std::vector<at::Tensor> expected = Attend(a_case, here, false);
    const std::vector<at::Tensor> found = Attend(a_case, there, true);
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor result = found[i].cpu().to(at::kDouble);
      EXPECT_LT((result - expected[i]).norm().item<double>(),
                tolerance * expected[i].norm().item<double>())
          << "result " << i << " of output, q, k, v, sinks";
    }
  }
};

TEST_P(CudaPackedAttentionTest, AgreesInFloat32) { Compare(at::kFloat, 1e-5); }
TEST_P(CudaPackedAttentionTest, AgreesInBFloat16) { Compare(at::kBFloat16, 1e-2); }
TEST_P(CudaPackedAttentionTest, AgreesWithExactNumerics) {
  SetNumerics(Numerics::kExact);
  Compare(at::kFloat, 1e-5);
  Compare(at::kBFloat16, 1e-2);
  SetNumerics(Numerics::kFast);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaPackedAttentionTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Bytes beyond the inputs at the peak of a forward and backward pass.
int64_t PeakBytes(int64_t length, const AttentionParams& params) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const Case a_case{"", 8, 2, 64, {length}, params};
  const auto options = at::TensorOptions(at::kBFloat16).device(kGpu);
  const std::vector<at::Tensor> inputs = {at::randn({length, 8, 64}, options),
                                          at::randn({length, 2, 64}, options),
                                          at::randn({length, 2, 64}, options)};
  allocator::resetPeakStats(kGpu.index());
  const auto bytes = [] { return allocator::getDeviceStats(kGpu.index()).allocated_bytes[0]; };
  const int64_t before = bytes().current;
  Attend(a_case, inputs, true);
  return bytes().peak - before;
}

TEST(CudaPackedAttentionMemory, GrowsWithTheNumberOfTokens) {
  TANDEM_SKIP_WITHOUT_CUDA();
  AttentionParams params;
  params.scale = 0.125;
  PeakBytes(1024, params);  // workspaces
  EXPECT_LT(PeakBytes(32768, params), 5 * PeakBytes(8192, params));
  params.softcap = 20.0;
  // Chunks of 256 MiB of scores, whatever the length.
  EXPECT_LT(PeakBytes(16384, params), int64_t{4} << 30);
}

}  // namespace
}  // namespace tandem::model
