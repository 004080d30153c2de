#include "services/trainer/algorithm/nonfinite_loss.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "common/telemetry/log.h"

namespace tandem::trainer {

void LogNonFiniteLoss(const MicroBatch& micro_batch, int64_t update, int64_t micro_batch_index,
                      const NamedTensors& terms) {
  for (const auto& [name, values] : terms) {
    if (!values.defined()) continue;
    const at::Tensor bad = values.detach().to(at::kCPU).isfinite().logical_not().nonzero();
    if (bad.numel() == 0) continue;
    const auto row = bad[0][0].item<int64_t>();
    const auto sample = micro_batch.sequence_index[row].item<int64_t>();
    const int64_t first = micro_batch.sequence_index.eq(sample).nonzero()[0][0].item<int64_t>();
    telemetry::LogWarning("the loss of a micro-batch is not finite",
                          {{"update", update},
                           {"micro_batch", micro_batch_index},
                           {"first_in", name},
                           {"sample", absl::StrCat("samples[", sample, "]")},
                           {"trained_token", row - first},
                           {"value", values[row].item<double>()},
                           {"num_bad", bad.size(0)}});
    return;
  }
  telemetry::LogWarning("the loss of a micro-batch is not finite",
                        {{"update", update},
                         {"micro_batch", micro_batch_index},
                         {"first_in", "the sum over tokens"}});
}

}  // namespace tandem::trainer
