// The matrix products of exact numerics, in which a row depends on that row alone.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/device_row_ops.h"
#include "common/model/linear.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"
#include "tools/tandem/gpu_check/kernels/with_exact_numerics.h"

namespace tandem::gpu_check {

void CompareRowProducts(Comparer& comparer) {
  struct Shape {
    int64_t rows, in, out;
  };
  const std::vector<Shape> shapes =
      comparer.small() ? std::vector<Shape>{{3, 64, 96}, {17, 40, 24}}
                       : std::vector<Shape>{{1, 896, 1152},   {5, 1536, 256}, {64, 4864, 896},
                                            {300, 896, 4864}, {33, 40, 24},   {129, 128, 5003}};
  const WithExactNumerics exact;
  for (const Shape& shape : shapes) {
    const at::Tensor x = comparer.Random({shape.rows, shape.in});
    const at::Tensor weight =
        comparer.Random({shape.out, shape.in}) / std::sqrt(static_cast<double>(shape.in));
    const at::Tensor bias = comparer.Random({shape.out});
    const std::string what = absl::StrCat(shape.rows, " x ", shape.in, " x ", shape.out);
    comparer.ExpectOurs(model::device::ProductsTake({x, weight, bias}));
    const at::Tensor product = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
    comparer.Expect(model::Linear(x, weight, std::nullopt), product, comparer.tolerance(), what);
    comparer.Expect(model::Linear(x, weight, bias), product + bias.to(at::kDouble),
                    comparer.tolerance(), absl::StrCat(what, ", bias"));
    comparer.Expect(model::LinearInFloat32(x, weight), product, 1e-5,
                    absl::StrCat(what, ", in float32"));
  }
}

}  // namespace tandem::gpu_check
