// The activations of feed-forward layers.
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "common/model/activation.h"
#include "common/model/device_row_ops.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {

void CompareActivations(Comparer& comparer) {
  using model::Activation;
  const std::vector<int64_t> sizes =
      comparer.small() ? std::vector<int64_t>{80, 5} : std::vector<int64_t>{4864, 18944, 80, 5};
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu,
        Activation::kRelu, Activation::kRelu2, Activation::kXielu, Activation::kClampedSwiglu}) {
    for (const bool gated : {true, false}) {
      if (activation == Activation::kXielu && gated) continue;
      if (activation == Activation::kClampedSwiglu && !gated) continue;
      model::ActivationFunction function{activation, gated, {}};
      if (activation == Activation::kXielu) {
        function.alphas = at::tensor({0.3f, -0.7f}).to(comparer.options());
      }
      model::ActivationFunction wide = function;
      if (wide.alphas.defined()) wide.alphas = wide.alphas.to(at::kDouble);
      for (const int64_t size : sizes) {
        const at::Tensor in = comparer.Random({33, gated ? 2 * size : size}) * 4;
        comparer.ExpectOurs(model::device::KernelsTake({in, function.alphas}));
        comparer.Expect(model::Activate(in, function), model::Activate(in.to(at::kDouble), wide),
                        comparer.tolerance(),
                        absl::StrCat("activation ", static_cast<int>(activation),
                                     gated ? ", gated, " : ", ", size));
      }
    }
  }
}

}  // namespace tandem::gpu_check
