// Clip-Cov (2505.22617): PPO's loss without the gradient of a few random tokens of high covariance,
// which would lower the entropy most; verl's clip_cov.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "services/trainer/algorithm/policy_loss.h"
#include "services/trainer/algorithm/token_covariance.h"

namespace tandem::trainer {
namespace {

// The same on every rank and in a resumed run.
uint64_t SeedOf(const TrainingBatch& batch) {
  uint64_t seed = 0xCBF29CE484222325ULL;
  for (const Sequence& sequence : batch.sequences) {
    for (const int64_t id : sequence.token_ids) {
      seed = (seed ^ static_cast<uint64_t>(id)) * 0x100000001B3ULL;
    }
  }
  return seed;
}

// Chooses floor(ratio * tokens), at least one, of the tokens whose covariance is in (low, high),
// without replacement.
void SelectAtRandom(TrainingBatch& batch, const PolicyLossOptions& options) {
  std::vector<TokenCovariance> tokens = TokenCovariances(batch);
  const auto wanted = std::max<size_t>(
      1, static_cast<size_t>(options.clip_cov_ratio * static_cast<double>(tokens.size())));
  std::erase_if(tokens, [&](const TokenCovariance& token) {
    return !(token.value > options.clip_cov_low && token.value < options.clip_cov_high);
  });
  const size_t count = std::min(wanted, tokens.size());
  std::mt19937_64 random(SeedOf(batch));
  for (size_t i = 0; i < count; ++i) {
    std::swap(tokens[i], tokens[i + random() % (tokens.size() - i)]);
  }
  tokens.resize(count);
  SelectTokens(batch, tokens);
}

// PPO's clipped loss without the dual clip, and 0 for the chosen tokens, which count as clipped.
PolicyLoss ClipCovLoss(const PolicyLossInputs& in, const PolicyLossOptions& options) {
  PolicyLossOptions plain = options;
  plain.clip.dual = 0;
  PolicyLoss out = kVanillaLoss.compute(in, plain);
  if (!in.selected.defined()) return out;
  out.loss = at::where(in.selected.gt(0), at::zeros_like(out.loss), out.loss);
  out.clipped = at::maximum(out.clipped, in.selected.to(out.clipped.scalar_type()));
  return out;
}

}  // namespace

const PolicyLossKind kClipCovLoss = {.mode = config::v1::POLICY_LOSS_MODE_CLIP_COV,
                                     .compute = ClipCovLoss,
                                     .select = SelectAtRandom};

}  // namespace tandem::trainer
