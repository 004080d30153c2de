// Models with latent attention whose cache holds latents, against the trainer's forward pass: the same
// log-probs, but for the last bits.
#ifndef TANDEM_TESTS_COMMON_MODEL_LATENT_CASES_H_
#define TANDEM_TESTS_COMMON_MODEL_LATENT_CASES_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/common/model/exact_numerics.h"

namespace tandem::model {

inline std::vector<ExactCase> LatentCases() {
  std::vector<ExactShape> shapes;
  for (const ExactShape& shape : LatentShapes()) {
    if (!shape.latent.has_value()) continue;
    shapes.push_back(shape);
    ExactShape windowed = shape;
    windowed.name = shape.latent->q_rank > 0 ? "windowed" : "windowed_no_q_rank";
    windowed.window = 20;
    shapes.push_back(windowed);
  }
  // More heads than one task takes, and a latent that does not fill whole registers.
  ExactShape many{"heads40_latent21", 40, 40, 12, 48, 80, 131};
  many.v_head_dim = 5;
  many.latent = LatentSpec{.q_rank = 20, .kv_rank = 21, .rope_dim = 4};
  shapes.push_back(many);
  // What a GPU's kernel over latents takes, in tiles that the heads do not fill.
  ExactShape tensor_cores{"heads20_latent64", 20, 20, 24, 48, 80, 131};
  tensor_cores.v_head_dim = 16;
  tensor_cores.latent = LatentSpec{.kv_rank = 64, .rope_dim = 16};
  shapes.push_back(tensor_cores);
  // Heads of DeepSeek's sizes.
  ExactShape large{"heads20_latent512", 20, 20, 128, 48, 80, 131};
  large.v_head_dim = 64;
  large.latent = LatentSpec{.q_rank = 20, .kv_rank = 512, .rope_dim = 64};
  shapes.push_back(large);
  std::vector<ExactCase> cases = ExactCases(shapes);
  std::erase_if(cases, [](const ExactCase& each) { return each.threads == 1; });
  for (ExactCase& each : cases) {
    each.latents = LatentCache::kLatents;
    each.longest = 150;
  }
  return cases;
}

inline double MeanDifference(const std::vector<float>& a, const std::vector<float>& b,
                             double& largest) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::max(largest, std::isnan(difference) ? 1e30 : difference);
    sum += difference;
  }
  return a.empty() ? 0.0 : sum / static_cast<double>(a.size());
}

inline void CompareWithTrainer(const ExactCase& latent_case) {
  const bool wide = latent_case.dtype == at::kFloat;
  // A GPU's trainer computes with ATen, in other orders than its rollout.
  const double slack = latent_case.device.is_cpu() ? 1.0 : 4.0;
  at::set_num_threads(latent_case.threads);
  ExactNumerics model(latent_case, /*seed=*/3);
  const auto sequences = model.DrawSequences(4);
  const std::vector<TokenResults> cached = model.Paged(sequences, 16);
  const std::vector<TokenResults> in_larger_blocks = model.Paged(sequences, 48);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const TokenResults alone = model.Alone(sequences[i]);
    for (const TokenResults& found : {cached[i], in_larger_blocks[i]}) {
      ASSERT_EQ(found.logprobs.size(), alone.logprobs.size());
      double largest = 0;
      const double mean = MeanDifference(found.logprobs, alone.logprobs, largest);
      EXPECT_LT(largest, wide ? 2e-5 * slack : 0.5) << "sequence " << i;
      EXPECT_LT(mean, wide ? 5e-6 * slack : 0.05) << "sequence " << i;
    }
  }
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_LATENT_CASES_H_
