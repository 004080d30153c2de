// Rotary tables, and the rotated and normed heads of fused projections.
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/rotary.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

// float32, on the CPU, as models have them.
at::Tensor Frequencies(int64_t rotary_dim) {
  return at::pow(10000.0, -at::arange(rotary_dim / 2).to(at::kFloat) * 2 / rotary_dim)
      .to(at::kFloat);
}

struct Case {
  model::QkvShape shape;
  int64_t rotary_dim = 0;
  bool interleaved = false;
  bool with_norms = false;
};

void CompareRotation(Comparer& comparer, const Case& at_case) {
  const model::QkvShape& shape = at_case.shape;
  const int64_t rows = 37;
  const std::string what =
      absl::StrCat(shape.num_heads, " and ", shape.num_kv_heads, " heads of ", shape.head_dim, ", ",
                   at_case.rotary_dim, " rotate", at_case.interleaved ? " in pairs" : "",
                   at_case.with_norms ? ", normed" : "");
  const at::Tensor positions = at::randint(0, 4000, {rows}, at::kLong).to(comparer.device());
  const at::Tensor frequencies = Frequencies(at_case.rotary_dim);
  model::RotaryAngles angles = model::AnglesOf(positions, frequencies);
  comparer.ExpectOurs(model::device::HasRotaryTable(positions, frequencies));
  // The angle is a float32 product; a last bit of it is 1e-4 at these positions.
  const at::Tensor exact =
      at::outer(positions.to(at::kFloat), frequencies.to(comparer.device())).to(at::kDouble);
  comparer.Expect(angles.cos, exact.cos(), 1e-6, absl::StrCat("cosines, ", what));
  comparer.Expect(angles.sin, exact.sin(), 1e-6, absl::StrCat("sines, ", what));

  angles.interleaved = at_case.interleaved;
  model::HeadRotation rotation{.angles = angles, .shape = shape};
  model::HeadRotation wide = rotation;
  if (at_case.with_norms) {
    rotation.norm = wide.norm = model::QkNormSpec{};
    rotation.q_norm.weight = comparer.Random({shape.head_dim});
    rotation.k_norm.weight = comparer.Random({shape.head_dim});
    wide.q_norm.weight = rotation.q_norm.weight.to(at::kDouble);
    wide.k_norm.weight = rotation.k_norm.weight.to(at::kDouble);
  }
  const at::Tensor qkv =
      comparer.Random({rows, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim});
  comparer.ExpectOurs(model::device::KernelsTake({qkv, rotation.q_norm.weight}));
  const model::Qkv found = model::RotateQkv(qkv, rotation);
  const model::Qkv expected = model::eager::RotateQkv(qkv.to(at::kDouble), wide);
  // The CPU's kernel rounds a normed head before it rotates it, and a rotated element has the
  // rounding of both of its pair.
  const double tolerance = (at_case.with_norms ? 2 : 1) * comparer.tolerance();
  comparer.Expect(found.q, expected.q, tolerance, absl::StrCat("queries, ", what));
  comparer.Expect(found.k, expected.k, tolerance, absl::StrCat("keys, ", what));
  comparer.Expect(found.v, expected.v, comparer.tolerance(), absl::StrCat("values, ", what));
}

}  // namespace

void CompareRotations(Comparer& comparer) {
  for (const model::QkvShape& shape :
       {model::QkvShape{14, 2, 64}, model::QkvShape{28, 4, 128}, model::QkvShape{6, 2, 12}}) {
    for (const bool with_norms : {false, true}) {
      CompareRotation(comparer, {shape, shape.head_dim, false, with_norms});
      CompareRotation(comparer, {shape, shape.head_dim / 2, false, with_norms});
      CompareRotation(comparer, {shape, shape.head_dim, true, with_norms});
    }
  }
}

}  // namespace tandem::gpu_check
