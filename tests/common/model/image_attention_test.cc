// Attention of images beside plain products and a softmax, forward and backward, and bit for bit beside
// the same image alone. On IMAGES_DEVICE, the CPU or a GPU.
#include "common/model/image_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <vector>

#include "common/model/numerics.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

const at::Device kDevice(IMAGES_DEVICE);
constexpr int64_t kHeads = 3;
constexpr double kScale = 0.25;
// A GPU's products in float32 are made of several in less.
const double kMore = kDevice.is_cuda() ? 5 : 1;

struct Heads {
  at::Tensor q, k, v;  // [tokens, heads, dim]
};

Heads RandomHeads(int64_t tokens, int64_t dim, at::ScalarType type) {
  at::manual_seed(3);
  const auto draw = [&] {
    return at::randn({tokens, kHeads, dim}, at::kFloat).to(type).to(kDevice);
  };
  return {draw(), draw(), draw()};
}

at::Tensor Attend(const std::vector<int64_t>& ends, const Heads& heads) {
  ImageAttention attention(ends);
  return attention.Forward(/*layer=*/0, heads.q, heads.k, heads.v, {.scale = kScale});
}

// In float64, with all scores of a segment.
at::Tensor Plain(const std::vector<int64_t>& ends, const Heads& heads) {
  std::vector<at::Tensor> segments;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    const auto part = [&](const at::Tensor& x) {
      return x.to(at::kDouble).narrow(0, ends[s], ends[s + 1] - ends[s]).transpose(0, 1);
    };
    const at::Tensor scores = at::matmul(part(heads.q), part(heads.k).transpose(1, 2)) * kScale;
    segments.push_back(
        at::matmul(at::softmax(scores, -1), part(heads.v)).transpose(0, 1).flatten(1));
  }
  return at::cat(segments);
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Shorter and longer than a block of keys; longer than the queries of one task; none.
const std::vector<int64_t> kEnds = {0, 1, 50, 50, 306, 1506};

// By the size of a head: no multiple of a register's width, and those of published towers.
class ImageAttentionTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) TANDEM_SKIP_WITHOUT_CUDA();
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(ImageAttentionTest, IsASoftmaxOverTheWholeSegment) {
  for (const auto& [type, tolerance] :
       {std::pair{at::kFloat, 1e-5 * kMore}, std::pair{at::kBFloat16, 2e-2}}) {
    const Heads heads = RandomHeads(kEnds.back(), GetParam(), type);
    for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
      SetNumerics(numerics);
      EXPECT_LT(Difference(Attend(kEnds, heads), Plain(kEnds, heads)), tolerance)
          << c10::toString(type);
    }
  }
}

TEST_P(ImageAttentionTest, HasTheGradientsOfPlainProducts) {
  const auto gradients = [](const auto& attend) {
    Heads heads = RandomHeads(kEnds.back(), GetParam(), at::kFloat);
    for (at::Tensor* tensor : {&heads.q, &heads.k, &heads.v}) tensor->requires_grad_();
    const at::Tensor out = attend(kEnds, heads);
    at::manual_seed(4);
    const at::Tensor gradient = at::randn(out.sizes(), at::kFloat).to(kDevice, out.scalar_type());
    return torch::autograd::grad({out}, {heads.q, heads.k, heads.v}, {gradient});
  };
  const auto expected = gradients(Plain);
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    SetNumerics(numerics);
    const auto found = gradients(Attend);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_LT(Difference(found[i], expected[i]), 2e-5 * kMore) << i;
    }
  }
}

TEST_P(ImageAttentionTest, HasTheBitsOfASegmentAlone) {
  SetNumerics(Numerics::kExact);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Heads heads = RandomHeads(kEnds.back(), GetParam(), type);
    const at::Tensor all = Attend(kEnds, heads);
    Heads recorded = heads;
    recorded.q = heads.q.clone().requires_grad_();
    EXPECT_TRUE(at::equal(Attend(kEnds, recorded).detach(), all));
    for (size_t s = 0; s + 1 < kEnds.size(); ++s) {
      const int64_t size = kEnds[s + 1] - kEnds[s];
      if (size == 0) continue;
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, kEnds[s], size); };
      const at::Tensor alone = Attend({0, size}, {part(heads.q), part(heads.k), part(heads.v)});
      EXPECT_TRUE(at::equal(alone, part(all))) << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, ImageAttentionTest, ::testing::Values(20, 72, 80));

}  // namespace
}  // namespace tandem::model
