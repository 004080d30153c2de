// The heads of latent attention against plain ATen in float64.
#include "common/model/latent_heads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <tuple>
#include <vector>

#include "common/model/eager_ops.h"

namespace tandem::model {
namespace {

constexpr int64_t kRows = 70;

struct Case {
  std::string name;
  LatentShape shape;
  bool rotates = true;
  bool interleaved = false;
};

RotaryAngles AnglesFor(const Case& c) {
  if (!c.rotates) return {};
  const at::Tensor angles = at::randn({kRows, c.shape.rope_dim / 2});
  return {at::cos(angles), at::sin(angles), c.interleaved};
}

LatentProjections ProjectionsFor(const LatentShape& shape, at::ScalarType type) {
  return {at::randn({kRows, shape.num_heads * shape.head_dim()}).to(type),
          at::randn({kRows, shape.rope_dim}).to(type),
          at::randn({kRows, shape.num_heads * (shape.nope_dim + shape.v_dim)}).to(type)};
}

// q, k, v, and the gradients of the projections.
std::vector<at::Tensor> Results(const LatentProjections& in, const LatentShape& shape,
                                RotaryAngles angles, at::ScalarType type) {
  const at::AutoGradMode grad(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : {in.q, in.shared, in.kv}) {
    leaves.push_back(x.to(type).detach().clone().requires_grad_(true));
  }
  const LatentProjections projections{leaves[0], leaves[1], leaves[2]};
  Qkv out;
  if (type == at::kDouble) {
    if (angles.cos.defined()) {
      angles.cos = angles.cos.to(type);
      angles.sin = angles.sin.to(type);
    }
    out = eager::JoinLatentHeads(projections, shape, angles);
  } else {
    out = JoinLatentHeads(projections, shape, angles);
  }
  at::Tensor loss = at::zeros({}, at::kDouble);
  std::vector<at::Tensor> results;
  for (const at::Tensor& heads : {out.q, out.k, out.v}) {
    const at::Tensor weight = at::sin(at::arange(heads.numel(), at::kDouble)).view(heads.sizes());
    loss = loss + (heads.to(at::kDouble) * weight).sum();
    results.push_back(heads.detach());
  }
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, leaves)) {
    results.push_back(gradient);
  }
  return results;
}

class LatentHeads : public ::testing::TestWithParam<std::tuple<Case, at::ScalarType>> {
 protected:
  void SetUp() override { at::manual_seed(5); }
};

TEST_P(LatentHeads, AgreeWithAtenAndItsGradients) {
  const auto& [c, type] = GetParam();
  const RotaryAngles angles = AnglesFor(c);
  const LatentProjections in = ProjectionsFor(c.shape, type);
  const std::vector<at::Tensor> expected = Results(in, c.shape, angles, at::kDouble);
  const std::vector<at::Tensor> found = Results(in, c.shape, angles, type);
  const double tolerance = type == at::kFloat ? 2e-6 : 2e-2;
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].scalar_type(), type);
    ASSERT_EQ(found[i].sizes(), expected[i].sizes());
    const double difference = (expected[i] - found[i].to(at::kDouble)).abs().max().item<double>();
    EXPECT_LT(difference, tolerance * (1 + expected[i].abs().max().item<double>()))
        << "result " << i;
  }
}

TEST_P(LatentHeads, ARowDoesNotDependOnWhatSharesTheBatchNorOnAGraph) {
  const auto& [c, type] = GetParam();
  const RotaryAngles angles = AnglesFor(c);
  const LatentProjections in = ProjectionsFor(c.shape, type);
  const std::vector<at::Tensor> whole = Results(in, c.shape, angles, type);
  const at::NoGradGuard no_grad;
  for (const int64_t row : {int64_t{0}, int64_t{33}, kRows - 1}) {
    const auto of_row = [row](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, row, 1) : x;
    };
    const Qkv alone = JoinLatentHeads({of_row(in.q), of_row(in.shared), of_row(in.kv)}, c.shape,
                                      {of_row(angles.cos), of_row(angles.sin), angles.interleaved});
    EXPECT_TRUE(at::equal(alone.q[0], whole[0][row]));
    EXPECT_TRUE(at::equal(alone.k[0], whole[1][row]));
    EXPECT_TRUE(at::equal(alone.v[0], whole[2][row]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LatentHeads,
    ::testing::Combine(::testing::Values(Case{"Halves", {4, 16, 8, 12}},
                                         Case{"Pairs", {4, 16, 8, 12}, true, true},
                                         Case{"LongPairs", {3, 5, 70, 9}, true, true},
                                         Case{"LongHalves", {1, 33, 68, 40}},
                                         Case{"NoRotation", {2, 7, 6, 3}, false}),
                       ::testing::Values(at::kFloat, at::kBFloat16)),
    [](const ::testing::TestParamInfo<std::tuple<Case, at::ScalarType>>& info) {
      return std::get<0>(info.param).name +
             (std::get<1>(info.param) == at::kFloat ? "Float32" : "BFloat16");
    });

}  // namespace
}  // namespace tandem::model
