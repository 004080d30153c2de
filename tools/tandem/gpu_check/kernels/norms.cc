// RMS norms and LayerNorms, alone and with the residual's sum.
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "common/model/device_row_ops.h"
#include "common/model/norm.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

model::Norm Wide(const model::Norm& norm) {
  const auto wide = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(at::kDouble) : tensor;
  };
  return {norm.spec, wide(norm.weight), wide(norm.bias)};
}

void CompareNorm(Comparer& comparer, const model::NormSpec& spec, int64_t rows, int64_t size) {
  model::Norm norm{spec, {}, {}};
  if (spec.weight) norm.weight = comparer.Random({size});
  if (spec.bias) norm.bias = comparer.Random({size});
  const at::Tensor x = comparer.Random({rows, size}), delta = comparer.Random({rows, size});
  comparer.ExpectOurs(model::device::KernelsTake({x, norm.weight, norm.bias}));
  const std::string what =
      absl::StrCat(spec.kind == model::NormKind::kRms ? "RMS" : "layer",
                   spec.weight ? "" : ", bare", spec.bias ? ", bias" : "",
                   spec.unit_offset ? ", unit offset" : "", ", ", rows, " rows of ", size);
  comparer.Expect(model::Normalize(x, norm), model::Normalize(x.to(at::kDouble), Wide(norm)),
                  comparer.tolerance(), what);
  const model::ResidualNorm found = model::AddNorm(x, delta, norm);
  const at::Tensor sum = x.to(at::kDouble) + delta.to(at::kDouble);
  comparer.Expect(found.residual, sum, comparer.tolerance(), absl::StrCat("sum, ", what));
  // Of the sum as it was rounded, which is the next sub-layer's residual.
  const at::Tensor rounded = found.residual.to(at::kDouble);
  comparer.Expect(found.normed, model::Normalize(rounded, Wide(norm)), comparer.tolerance(),
                  absl::StrCat("norm of a sum, ", what));
}

}  // namespace

void CompareNorms(Comparer& comparer) {
  std::vector<int64_t> sizes = {896, 3584, 48, 7, 100}, rows = {1, 5, 300};
  if (comparer.small()) sizes = {896, 7}, rows = {3};
  for (const model::NormKind kind : {model::NormKind::kRms, model::NormKind::kLayer}) {
    std::vector<model::NormSpec> specs = {{kind, 1e-5, /*weight=*/false}};
    for (const bool bias : {false, true}) {
      specs.push_back({kind, 1e-5, /*weight=*/true, bias, /*unit_offset=*/false});
      specs.push_back({kind, 1e-5, /*weight=*/true, bias, /*unit_offset=*/true});
    }
    for (const model::NormSpec& spec : specs) {
      for (const int64_t size : sizes) {
        for (const int64_t count : rows) CompareNorm(comparer, spec, count, size);
      }
    }
  }
}

}  // namespace tandem::gpu_check
