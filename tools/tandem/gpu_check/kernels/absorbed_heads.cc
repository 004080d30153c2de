// Queries and results of attention over latents, which go through the up-projection.
#include "common/model/absorbed_heads.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

struct Case {
  model::LatentShape shape;
  int64_t kv_rank;
  bool interleaved;
};

// x: float64 [rows, heads, rope_dim].
at::Tensor Rotated(const at::Tensor& x, const model::RotaryAngles& angles) {
  const int64_t half = angles.cos.size(1);
  const at::Tensor cos = angles.cos.to(at::kDouble).unsqueeze(1);
  const at::Tensor sin = angles.sin.to(at::kDouble).unsqueeze(1);
  const at::Tensor pairs =
      angles.interleaved ? x.unflatten(2, {half, 2}) : x.unflatten(2, {2, half}).transpose(2, 3);
  const at::Tensor a = pairs.select(3, 0), b = pairs.select(3, 1);
  const at::Tensor rotated = at::stack({a * cos - b * sin, b * cos + a * sin}, 3);
  return (angles.interleaved ? rotated : rotated.transpose(2, 3)).flatten(2);
}

void CompareCase(Comparer& comparer, const Case& a_case, int64_t rows) {
  const model::LatentShape& shape = a_case.shape;
  const int64_t of_head = shape.nope_dim + shape.v_dim;
  const at::Tensor q = comparer.Random({rows, shape.num_heads * shape.head_dim()});
  const at::Tensor latent = comparer.Random({rows, a_case.kv_rank});
  const at::Tensor shared = comparer.Random({rows, shape.rope_dim});
  const at::Tensor up = comparer.Random({shape.num_heads * of_head, a_case.kv_rank}) * 0.05;
  const at::Tensor angle =
      at::randn({rows, shape.rope_dim / 2}, at::device(comparer.device()).dtype(at::kFloat));
  const model::RotaryAngles angles{at::cos(angle), at::sin(angle), a_case.interleaved};
  const at::Tensor wide_up = up.to(at::kDouble).view({shape.num_heads, of_head, a_case.kv_rank});
  const std::string what = absl::StrCat(shape.num_heads, " heads, latents of ", a_case.kv_rank,
                                        " and ", shape.rope_dim, ", ", rows, " rows");

  const model::AbsorbedHeads found = model::AbsorbQueries(q, latent, shared, up, shape, angles);
  const at::Tensor heads = q.to(at::kDouble).view({rows, shape.num_heads, shape.head_dim()});
  const at::Tensor absorbed = at::einsum(
      "thn,hnr->thr", {heads.narrow(2, 0, shape.nope_dim), wide_up.narrow(1, 0, shape.nope_dim)});
  const at::Tensor turning = heads.narrow(2, shape.nope_dim, shape.rope_dim);
  comparer.Expect(found.q, at::cat({absorbed, Rotated(turning, angles)}, 2), comparer.tolerance(),
                  what + ", queries");
  const at::Tensor key = Rotated(shared.to(at::kDouble).unsqueeze(1), angles).select(1, 0);
  comparer.Expect(found.latents, at::cat({latent.to(at::kDouble), key}, 1), comparer.tolerance(),
                  what + ", latents");

  const at::Tensor attended = comparer.Random({rows, shape.num_heads * a_case.kv_rank});
  const at::Tensor expanded = at::einsum(
      "thr,hvr->thv", {attended.to(at::kDouble).view({rows, shape.num_heads, a_case.kv_rank}),
                       wide_up.narrow(1, shape.nope_dim, shape.v_dim)});
  comparer.Expect(model::ExpandAttended(attended, up, shape), expanded.flatten(1),
                  comparer.tolerance(), what + ", values");
}

}  // namespace

void CompareAbsorbedHeads(Comparer& comparer) {
  std::vector<Case> cases = {{{6, 12, 8, 10}, 24, true}, {{5, 20, 12, 7}, 40, false}};
  if (!comparer.small()) cases.push_back({{128, 128, 64, 128}, 512, true});
  for (const Case& a_case : cases) {
    for (const int64_t rows : {1, 37}) CompareCase(comparer, a_case, rows);
  }
}

}  // namespace tandem::gpu_check
