// Norms and rotations of heads of every kind, against plain ATen in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

#include "common/model/eager_ops.h"
#include "common/model/rotary.h"
#include "tests/common/model/other_rotations.h"

namespace tandem::model {
namespace {

constexpr QkvShape kShape{6, 2, 40};
constexpr int64_t kRows = 70;

at::Tensor As(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.detach().to(type) : tensor;
}

// q, k, v and the gradients of the projection and of the norms' tensors.
std::vector<at::Tensor> Results(const at::Tensor& qkv, HeadRotation rotation, at::ScalarType type) {
  const at::AutoGradMode grad(true);
  std::vector<at::Tensor> leaves = {As(qkv, type).clone().requires_grad_(true)};
  for (NormTensors* norm : {&rotation.q_norm, &rotation.k_norm}) {
    for (at::Tensor* tensor : {&norm->weight, &norm->bias}) {
      if (!tensor->defined()) continue;
      *tensor = As(*tensor, type).clone().requires_grad_(true);
      leaves.push_back(*tensor);
    }
  }
  Qkv out;
  if (type == at::kDouble) {
    rotation.angles.cos = As(rotation.angles.cos, type);
    rotation.angles.sin = As(rotation.angles.sin, type);
    rotation.query_scale = As(rotation.query_scale, type);
    out = eager::RotateQkv(leaves[0], rotation);
  } else {
    out = RotateQkv(leaves[0], rotation);
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

class HeadRotationOfType : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(5); }
};

TEST_P(HeadRotationOfType, AgreesWithAtenAndItsGradients) {
  const at::ScalarType type = GetParam();
  const double tolerance = type == at::kFloat ? 2e-5 : 3e-2;
  std::vector<HeadRotation> rotations = OtherRotations(kShape, kRows, type);
  // The fused rotation beside a norm of values.
  rotations.push_back({.angles = RandomAngles(kRows, kShape.head_dim),
                       .shape = kShape,
                       .value_norm = NormSpec{.eps = 1e-5, .weight = false}});
  for (size_t i = 0; i < rotations.size(); ++i) {
    const at::Tensor qkv = at::randn({kRows, 10 * kShape.head_dim}).to(type);
    const std::vector<at::Tensor> expected = Results(qkv, rotations[i], at::kDouble);
    const std::vector<at::Tensor> found = Results(qkv, rotations[i], type);
    ASSERT_EQ(expected.size(), found.size());
    for (size_t j = 0; j < expected.size(); ++j) {
      ASSERT_EQ(found[j].scalar_type(), type);
      const double difference = (expected[j] - found[j].to(at::kDouble)).abs().max().item<double>();
      EXPECT_LT(difference, tolerance * (1 + expected[j].abs().max().item<double>()))
          << "rotation " << i << ", result " << j;
    }
  }
}

TEST_P(HeadRotationOfType, ARowDoesNotDependOnWhatSharesTheBatchNorOnAGraph) {
  for (const HeadRotation& rotation : OtherRotations(kShape, kRows, GetParam())) {
    const at::Tensor qkv = at::randn({kRows, 10 * kShape.head_dim}).to(GetParam());
    const std::vector<at::Tensor> whole = Results(qkv, rotation, GetParam());
    const at::NoGradGuard no_grad;
    for (const int64_t row : {int64_t{0}, int64_t{33}, kRows - 1}) {
      const Qkv alone = RotateQkv(qkv.narrow(0, row, 1), RowsOf(rotation, row, 1));
      EXPECT_TRUE(at::equal(alone.q[0], whole[0][row]));
      EXPECT_TRUE(at::equal(alone.k[0], whole[1][row]));
      EXPECT_TRUE(at::equal(alone.v[0], whole[2][row]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HeadRotationOfType, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const ::testing::TestParamInfo<at::ScalarType>& info) {
                           return info.param == at::kFloat ? "Float32" : "BFloat16";
                         });

TEST(HeadRotation, APairOfAHeadRotatesByItsAngle) {
  const at::NoGradGuard no_grad;
  const QkvShape shape{1, 1, 4};
  const at::Tensor angle = at::tensor({0.5f, 1.5f}).unsqueeze(0);
  const at::Tensor qkv = at::tensor({1.f, 2.f, 3.f, 4.f, 1.f, 2.f, 3.f, 4.f, 9.f, 9.f, 9.f, 9.f});
  HeadRotation rotation{.angles = {angle.cos(), angle.sin(), true}, .shape = shape};
  const at::Tensor pairs = RotateQkv(qkv.unsqueeze(0), rotation).q.flatten();
  EXPECT_NEAR(pairs[1].item<float>(), 2 * std::cos(0.5) + 1 * std::sin(0.5), 1e-6);
  EXPECT_NEAR(pairs[2].item<float>(), 3 * std::cos(1.5) - 4 * std::sin(1.5), 1e-6);
  rotation.angles.interleaved = false;
  const at::Tensor halves = RotateQkv(qkv.unsqueeze(0), rotation).q.flatten();
  EXPECT_NEAR(halves[2].item<float>(), 3 * std::cos(0.5) + 1 * std::sin(0.5), 1e-6);
}

}  // namespace
}  // namespace tandem::model
