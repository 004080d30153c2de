// What the trainer's forward pass says of tokens.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_TRAINER_LOG_PROBS_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_TRAINER_LOG_PROBS_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/model/arena.h"
#include "common/model/packed_attention.h"
#include "common/model/transformer.h"

namespace tandem::rollout {

// The trainer's log-probs of a sequence's tokens after the first, alone in its batch, computed on
// `device`.
inline std::vector<float> TrainerLogProbs(const model::Transformer& model, const model::Arena& live,
                                          const std::vector<int32_t>& tokens,
                                          double temperature = 1.0, at::Device device = at::kCPU) {
  const at::NoGradGuard no_grad;
  model::Arena arena(model.table(), live.dtype(), device);
  arena.CopyFrom(live);
  const int64_t n = static_cast<int64_t>(tokens.size());
  const at::Tensor ids = at::tensor(tokens, at::kInt).to(device, at::kLong);
  const at::Tensor cu_seqlens = at::tensor({int64_t{0}, n}, at::kLong);
  model::PackedAttention attention(cu_seqlens);
  const at::Tensor positions = model::PackedPositions(cu_seqlens).to(device);
  const model::Rotary rotary = model.MakeRotary(positions);
  const at::Tensor x = model.Blocks(arena, ids, positions, rotary, attention);
  const at::Tensor temperatures = at::full({n - 1}, temperature, at::kFloat).to(device);
  const model::LogProbs out = model.HeadLogProbs(
      arena, model.FinalNorm(arena, x).narrow(0, 0, n - 1), ids.narrow(0, 1, n - 1), temperatures);
  const at::Tensor logprobs = out.logprobs.cpu().contiguous();
  const float* const data = logprobs.const_data_ptr<float>();
  return std::vector<float>(data, data + logprobs.numel());
}

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_TRAINER_LOG_PROBS_H_
