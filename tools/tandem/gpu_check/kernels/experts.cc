// Routing, the weighted sums of rows and the products of groups, for layers of experts.
#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/device_experts.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/expert_rows.h"
#include "common/model/grouped_linear.h"
#include "common/model/router.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"
#include "tools/tandem/gpu_check/kernels/with_exact_numerics.h"

namespace tandem::gpu_check {

void CompareRouting(Comparer& comparer) {
  using Score = model::RoutingSpec::Score;
  const std::vector<model::RoutingSpec> specs = {
      {.top_k = 8, .normalize = true},
      {.top_k = 4},
      {.top_k = 8,
       .normalize = true,
       .score = Score::kSigmoid,
       .num_groups = 8,
       .top_groups = 4,
       .scale = 2.5},
      {.top_k = 1, .score = Score::kSigmoidOfChosen},
      {.top_k = 2, .score = Score::kSparsemixer, .jitter = 0.01}};
  const int64_t tokens = comparer.small() ? 5 : 2000;
  for (const model::RoutingSpec& spec : specs) {
    const model::Router router{spec, {}};
    const at::Tensor logits = comparer.Random({tokens, 128});
    const std::string what =
        absl::StrCat("top ", spec.top_k, ", score ", static_cast<int>(spec.score));
    comparer.ExpectOurs(model::device::RoutingTakes(logits, spec));
    const at::Tensor experts = model::ChooseExperts(logits, router);
    comparer.ExpectEqual(experts, model::eager::ChooseExperts(logits, router).to(at::kDouble),
                         what);
    comparer.Expect(model::ExpertWeights(logits, experts, router),
                    model::eager::ExpertWeights(logits.to(at::kDouble), experts, router), 1e-5,
                    absl::StrCat(what, ", weights"));
  }
}

namespace {

void CompareLayer(Comparer& comparer, int64_t tokens, int64_t in, int64_t out,
                  const char* numerics) {
  constexpr int64_t kExperts = 16;
  const model::Router router{{.top_k = 4, .normalize = true}, {}};
  const at::Tensor logits = comparer.Random({tokens, kExperts}).to(at::kFloat);
  const at::Tensor experts = model::ChooseExperts(logits, router);
  const at::Tensor factors = model::ExpertWeights(logits, experts, router);
  const model::ExpertRows rows = model::GroupByExpert(experts, kExperts);
  const at::Tensor x = comparer.Random({tokens, in});
  const at::Tensor weights =
      comparer.Random({kExperts, out, in}) / std::sqrt(static_cast<double>(in));
  const at::Tensor biases = comparer.Random({kExperts, out});
  comparer.ExpectOurs(model::device::KernelsTake({x}) && model::device::GroupingTakes(experts));
  const std::vector<const model::kernels::PackedMatrix*> packed(kExperts, nullptr);
  const at::Tensor results = model::GroupedLinear(model::DispatchRows(x, rows), rows,
                                                  weights.unbind(), biases.unbind(), packed);
  // Expert by expert: all of its rows.
  at::Tensor expected = at::zeros({tokens, out}, x.options().dtype(at::kDouble));
  for (int64_t e = 0; e < kExperts; ++e) {
    const at::Tensor factor = at::where(experts.eq(e), factors, 0.0).sum(1).to(at::kDouble);
    expected += factor.unsqueeze(1) * (at::mm(x.to(at::kDouble), weights[e].to(at::kDouble).t()) +
                                       biases[e].to(at::kDouble));
  }
  comparer.Expect(model::CombineRows(results, factors, rows), expected, 2 * comparer.tolerance(),
                  absl::StrCat(tokens, " x ", in, " x ", out, ", ", numerics));
}

}  // namespace

void CompareExperts(Comparer& comparer) {
  struct Shape {
    int64_t tokens, in, out;
  };
  const std::vector<Shape> shapes =
      comparer.small()
          ? std::vector<Shape>{{3, 64, 40}, {9, 40, 24}}
          : std::vector<Shape>{{1, 2048, 1536}, {64, 768, 2048}, {1000, 512, 96}, {33, 36, 20}};
  for (const Shape& shape : shapes) {
    CompareLayer(comparer, shape.tokens, shape.in, shape.out, "fast");
    const WithExactNumerics exact;
    CompareLayer(comparer, shape.tokens, shape.in, shape.out, "exact");
  }
}

}  // namespace tandem::gpu_check
