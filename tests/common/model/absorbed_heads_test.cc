// Attention to latents without keys and values, against ATen in float64 with every head's keys and
// values.
#include "common/model/absorbed_heads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/model/eager_ops.h"
#include "common/model/worker_pool.h"

namespace tandem::model {
namespace {

constexpr int64_t kRank = 13;

struct Inputs {
  at::Tensor q, latent, shared, up;

  Inputs To(at::ScalarType type) const {
    return {q.to(type), latent.to(type), shared.to(type), up.to(type)};
  }
  Inputs Row(int64_t row) const {
    return {q.narrow(0, row, 1), latent.narrow(0, row, 1), shared.narrow(0, row, 1), up};
  }
};

Inputs RandomInputs(int64_t tokens, const LatentShape& shape, at::ScalarType type) {
  at::manual_seed(5);
  const Inputs in = {at::randn({tokens, shape.num_heads * shape.head_dim()}),
                     at::randn({tokens, kRank}), at::randn({tokens, shape.rope_dim}),
                     at::randn({shape.num_heads * (shape.nope_dim + shape.v_dim), kRank}) / 4};
  return in.To(type);
}

// Scores of every token with every token, and values' sums weighted by them, [tokens, heads, v_dim].
struct Attended {
  at::Tensor scores, values;
};

Attended ByLatents(const Inputs& in, const LatentShape& shape) {
  const AbsorbedHeads heads = AbsorbQueries(in.q, in.latent, in.shared, in.up, shape, {});
  const at::Tensor scores =
      at::einsum("ihd,jd->hij", {heads.q.to(at::kDouble), heads.latents.to(at::kDouble)});
  const at::Tensor sums =
      at::einsum("hij,jd->ihd", {scores, in.latent.to(at::kDouble)}).to(in.q.scalar_type());
  const at::Tensor out = ExpandAttended(sums.flatten(1), in.up, shape);
  return {scores, out.view({in.q.size(0), shape.num_heads, shape.v_dim})};
}

Attended ByHeads(const Inputs& in, const LatentShape& shape) {
  const LatentProjections projections{in.q, in.shared, at::matmul(in.latent, in.up.t())};
  const Qkv heads = eager::JoinLatentHeads(projections, shape, {});
  const at::Tensor scores = at::einsum("ihd,jhd->hij", {heads.q, heads.k});
  return {scores, at::einsum("hij,jhd->ihd", {scores, heads.v})};
}

class AbsorbedHeadsTest
    : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, at::ScalarType>> {};

TEST_P(AbsorbedHeadsTest, GiveTheScoresAndSumsOfEveryHeadsKeysAndValues) {
  const auto [tokens, num_heads, type] = GetParam();
  const LatentShape shape{num_heads, /*nope_dim=*/10, /*rope_dim=*/4, /*v_dim=*/7};
  const Inputs in = RandomInputs(tokens, shape, type);
  const Attended expected = ByHeads(in.To(at::kDouble), shape);
  WorkerPool pool(3);
  const UseWorkerPool use(&pool);

  const Attended found = ByLatents(in, shape);

  const double tolerance = type == at::kFloat ? 1e-5 : 3e-2;
  const auto difference = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a.to(at::kDouble) - b).abs().max() / b.abs().max()).item<double>();
  };
  EXPECT_LT(difference(found.scores, expected.scores), tolerance);
  EXPECT_LT(difference(found.values, expected.values), tolerance);
}

TEST_P(AbsorbedHeadsTest, DoNotDependOnOtherRowsAndThreads) {
  const auto [tokens, num_heads, type] = GetParam();
  const LatentShape shape{num_heads, /*nope_dim=*/10, /*rope_dim=*/4, /*v_dim=*/7};
  const Inputs in = RandomInputs(tokens, shape, type);
  const at::Tensor sums = at::randn({tokens, num_heads * kRank}).to(type);
  const auto queries = [&shape](const Inputs& rows) {
    return AbsorbQueries(rows.q, rows.latent, rows.shared, rows.up, shape, {}).q;
  };
  const at::Tensor q = queries(in);
  const at::Tensor out = ExpandAttended(sums, in.up, shape);
  WorkerPool pool(3);
  const UseWorkerPool use(&pool);
  for (const int64_t row : {int64_t{0}, tokens / 2, tokens - 1}) {
    ASSERT_TRUE(at::equal(queries(in.Row(row)), q.narrow(0, row, 1))) << row;
    ASSERT_TRUE(
        at::equal(ExpandAttended(sums.narrow(0, row, 1), in.up, shape), out.narrow(0, row, 1)))
        << row;
  }
}

// Fewer heads than threads and more; one token, few and many.
INSTANTIATE_TEST_SUITE_P(Shapes, AbsorbedHeadsTest,
                         ::testing::Combine(::testing::Values(1, 9, 70), ::testing::Values(2, 5),
                                            ::testing::Values(at::kFloat, at::kBFloat16)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_tokens_",
                                               std::get<1>(info.param), "_heads_",
                                               at::toString(std::get<2>(info.param)));
                         });

}  // namespace
}  // namespace tandem::model
