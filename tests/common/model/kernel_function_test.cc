#include "common/model/kernel_function.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace tandem::model {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors Reference(const Tensors& in) { return {in[0] * in[1], in[0] + in[1]}; }

// The same, but for a mark.
Tensors Kernels(const Tensors& in) {
  EXPECT_FALSE(at::GradMode::is_enabled());
  Tensors out = Reference(in);
  for (at::Tensor& tensor : out) tensor += 1e-3;
  return out;
}

TEST(RecordedKernels, GiveTheKernelsResultsAndTheReferencesGradients) {
  const at::Tensor x = at::randn({3, 4}).requires_grad_();
  const at::Tensor w = at::randn({4}).requires_grad_();
  const Tensors found = RecordedKernels({x, w}, Kernels, Reference);
  const Tensors expected = Reference({x, w});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(found[i], expected[i] + 1e-3));

  const Tensors weights = {at::randn({3, 4}), at::randn({3, 4})};
  const Tensors gradients = torch::autograd::grad(found, {x, w}, weights);
  const Tensors reference = torch::autograd::grad(expected, {x, w}, weights);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(gradients[i], reference[i]));
}

TEST(RecordedKernels, DifferentiateOnlyWhatIsAskedFor) {
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor w = at::randn({4}).requires_grad_();
  const Tensors found = RecordedKernels({x, w}, Kernels, Reference);
  // Of the first result alone.
  const Tensors gradients = torch::autograd::grad({found[0]}, {w}, {at::ones({3, 4})});
  EXPECT_TRUE(at::allclose(gradients[0], x.sum(0)));
}

// The inputs' memory may be taken away meanwhile, and be there again, as with sharded parameters.
TEST(RecordedKernels, ReadTheInputsAsTheyAreThen) {
  const at::Tensor x = at::ones({2, 4}).requires_grad_();
  const at::Tensor w = at::ones({4}).requires_grad_();
  const Tensors found = RecordedKernels({x, w}, Kernels, Reference);
  {
    const at::NoGradGuard no_grad;
    w.unsafeGetTensorImpl()->storage().set_data_ptr_noswap(
        at::full({4}, 5.0f).storage().unsafeGetStorageImpl()->set_data_ptr(
            at::DataPtr(nullptr, at::kCPU)));
  }
  const Tensors gradients = torch::autograd::grad({found[0]}, {x}, {at::ones({2, 4})});
  EXPECT_TRUE(at::equal(gradients[0], at::full({2, 4}, 5.0)));
}

}  // namespace
}  // namespace tandem::model
