// Shapes and draws of linear attention, for tests that compare it with plain ATen in float64.
#ifndef TANDEM_TESTS_COMMON_MODEL_DELTA_CASES_H_
#define TANDEM_TESTS_COMMON_MODEL_DELTA_CASES_H_

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "common/model/delta_attention.h"

namespace tandem::model {

struct DeltaCase {
  std::string name;
  DeltaSpec spec;
  std::vector<int64_t> lengths;
};

inline DeltaSpec DeltaSpecOf(int64_t key_heads, int64_t value_heads, int64_t key_dim,
                             int64_t value_dim, int64_t kernel_size) {
  return {.num_key_heads = key_heads,
          .num_value_heads = value_heads,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .kernel_size = kernel_size};
}

inline std::vector<DeltaCase> DeltaCases() {
  return {
      // Several of the backward pass' chunks; sequences without tokens, and shorter than the kernel.
      {"Groups", DeltaSpecOf(2, 4, 16, 16, 4), {1, 70, 0, 2, 33}},
      {"NoWholeRegister", DeltaSpecOf(1, 3, 10, 5, 3), {40, 3}},
      {"WideValues", DeltaSpecOf(2, 2, 24, 80, 4), {65, 32}},
      {"KernelOfOne", DeltaSpecOf(3, 3, 8, 24, 1), {5, 40}},
      {"KernelLongerThanSequences", DeltaSpecOf(1, 2, 12, 36, 9), {4, 7, 1}},
  };
}

// projected, convolution, a_log, dt_bias, norm.
using DeltaTensorList = std::vector<at::Tensor>;

inline DeltaTensors TensorsOf(const DeltaTensorList& in) {
  return {in[0], in[1], in[2], in[3], in[4]};
}

inline DeltaTensorList DeltaInputsOf(const DeltaCase& c, at::ScalarType type) {
  const DeltaSpec& spec = c.spec;
  int64_t tokens = 0;
  for (const int64_t length : c.lengths) tokens += length;
  return {at::randn({tokens, spec.projected_size()}).to(type),
          at::randn({spec.convolved_size(), 1, spec.kernel_size}).mul(0.6).to(type),
          at::randn({spec.num_value_heads}).mul(0.7).to(type),
          at::randn({spec.num_value_heads}).to(type),
          at::randn({spec.value_dim}).mul(0.3).add(1.0).to(type)};
}

inline at::Tensor EndsOf(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ends = {0};
  for (const int64_t length : lengths) ends.push_back(ends.back() + length);
  return at::tensor(ends, at::kLong);
}

// What `compute` gives for the inputs in `type` on `device`, then the gradients of a sum with fixed
// weights; all on the CPU.
inline DeltaTensorList DeltaResults(
    const DeltaTensorList& inputs, at::ScalarType type,
    const std::function<at::Tensor(const DeltaTensorList&)>& compute,
    at::Device device = at::kCPU) {
  const at::AutoGradMode grad(true);
  DeltaTensorList leaves;
  for (const at::Tensor& x : inputs) {
    leaves.push_back(x.to(device, type).detach().clone().requires_grad_(true));
  }
  const at::Tensor out = compute(leaves);
  const at::Tensor weights =
      at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes()).to(device);
  const at::Tensor loss = (out.to(at::kDouble) * weights).sum();
  DeltaTensorList results = {out.detach().cpu()};
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, leaves)) {
    results.push_back(gradient.cpu());
  }
  return results;
}

inline void ExpectDeltaClose(const DeltaTensorList& found, const DeltaTensorList& expected,
                             double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << "result " << i;
    const at::Tensor difference = (expected[i] - found[i].to(at::kDouble)).abs();
    EXPECT_LT(difference.max().item<double>(),
              tolerance * (1 + expected[i].abs().max().item<double>()))
        << "result " << i << " of the output, then gradients";
  }
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_DELTA_CASES_H_
