#include "services/trainer/fsdp/image_boundary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>

namespace tandem::trainer {
namespace {

constexpr int64_t kHidden = 3;

// A layer that doubles.
at::Tensor Layer(const at::Tensor& x) { return x * 2; }

// Two layers behind an embedding with the rows of two images.
at::Tensor Pass(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows) {
  at::Tensor boundary = WithLaterRows(x, rows);
  for (int layer = 0; layer < 2; ++layer) {
    const ImageBoundary in = SplitBoundary(boundary, x.size(0), tokens.numel());
    boundary = JoinBoundary(Layer(in.x), tokens, in);
  }
  return boundary;
}

TEST(ImageBoundary, RowsAreAddedBehindTheirLayers) {
  const at::Tensor x = at::ones({4, kHidden});
  const at::Tensor tokens = at::tensor({2, 0}, at::kLong);
  const at::Tensor rows = at::arange(2 * 3 * kHidden, at::kFloat).view({2, 3 * kHidden});

  const at::Tensor out = Pass(x, tokens, rows);

  const at::Tensor behind_first =
      at::full({4, kHidden}, 2.0).index_add(0, tokens, rows.narrow(1, 3, 3));
  EXPECT_TRUE(at::equal(out, (behind_first * 2).index_add(0, tokens, rows.narrow(1, 6, 3))));
}

TEST(ImageBoundary, GradientsOfRowsComeBackThroughTheLayers) {
  const at::Tensor x = at::ones({4, kHidden}).requires_grad_();
  const at::Tensor tokens = at::tensor({2, 0}, at::kLong);
  const at::Tensor rows = at::ones({2, 3 * kHidden}).requires_grad_();

  const auto gradients = torch::autograd::grad({Pass(x, tokens, rows).sum()}, {x, rows});

  EXPECT_TRUE(at::equal(gradients[0], at::full({4, kHidden}, 4.0)));
  // The first part stands in the embedding, which PutImages() sees to.
  EXPECT_TRUE(at::equal(gradients[1][0], at::tensor({0, 0, 0, 2, 2, 2, 1, 1, 1}, at::kFloat)));
}

TEST(ImageBoundary, IsTheStreamWithoutRowsForLayers) {
  const at::Tensor x = at::ones({4, kHidden});
  const at::Tensor tokens = at::tensor({2, 0}, at::kLong);
  EXPECT_TRUE(WithLaterRows(x, at::ones({2, kHidden})).is_same(x));
  const ImageBoundary in = SplitBoundary(x, 4, 2);
  EXPECT_TRUE(in.x.is_same(x));
  EXPECT_TRUE(JoinBoundary(x, tokens, in).is_same(x));
}

}  // namespace
}  // namespace tandem::trainer
