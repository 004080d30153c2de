// Log-probs and entropies of the output head.
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "common/model/device_row_ops.h"
#include "common/model/head.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {

void CompareLogProbs(Comparer& comparer) {
  const std::vector<int64_t> vocabularies =
      comparer.small() ? std::vector<int64_t>{503} : std::vector<int64_t>{5003, 7, 152064};
  for (const int64_t vocab : vocabularies) {
    const int64_t rows = 70;
    const at::Tensor hidden = comparer.Random({rows, 64}), weight = comparer.Random({vocab, 64});
    const at::Tensor targets = at::randint(0, vocab, {rows}, at::kLong).to(comparer.device());
    const at::Tensor temperatures = (at::rand({rows}) + 0.5).to(comparer.device());
    comparer.ExpectOurs(model::device::KernelsTake({temperatures}));
    const model::LogProbs found =
        model::ChunkedLogProbs(hidden, {.weight = weight}, targets, temperatures);
    const at::Tensor logits = at::mm(hidden.to(at::kDouble), weight.to(at::kDouble).t()) /
                              temperatures.to(at::kDouble).unsqueeze(1);
    const at::Tensor log_p = at::log_softmax(logits, 1);
    // Logits are float32 of both types.
    comparer.Expect(found.logprobs, log_p.gather(1, targets.unsqueeze(1)).squeeze(1), 2e-5,
                    absl::StrCat("log-probs, vocabulary of ", vocab));
    comparer.Expect(found.entropy, -(log_p.exp() * log_p).sum(1), 2e-5,
                    absl::StrCat("entropies, vocabulary of ", vocab));
  }
}

}  // namespace tandem::gpu_check
