#include "services/rollout/runner/forward_pass.h"

#include "common/model/vision_tower.h"

namespace tandem::rollout {
namespace {

class CpuForwardPass : public ForwardPass {
 public:
  CpuForwardPass(const model::Transformer& model, const model::PagedKvCache& cache)
      : model_(model), attention_(cache) {}

  std::shared_ptr<void> Enter() override { return nullptr; }
  void Synchronize() override {}
  void Forget() override {}

  at::Tensor Run(const model::ParameterProvider& params, const ForwardBatch& batch) override {
    attention_.Begin(batch.sequences);
    const model::RouterPass routers{.recorder = batch.recorder};
    return RunStages(model_, params, batch.token_ids, batch.positions, attention_, &routers,
                     batch.image_tokens, batch.image_rows);
  }

 private:
  const model::Transformer& model_;
  model::PagedAttention attention_;
};

}  // namespace

at::Tensor RunStages(const model::Transformer& model, const model::ParameterProvider& params,
                     const at::Tensor& token_ids, const at::Tensor& positions,
                     model::Attention& attention, const model::RouterPass* routers,
                     const at::Tensor& image_tokens, const at::Tensor& image_rows) {
  const model::Rotary rotary = model.MakeRotary(positions);
  model::Transformer::Carried carried;
  model::Residual x{model.Embed(params, token_ids, positions, &carried), {}};
  if (image_rows.defined()) x.x = model::PutImages(x.x, image_tokens, image_rows);
  for (int64_t layer = 0; layer < model.spec().num_layers(); ++layer) {
    x = model.Block(params, layer, x, rotary, attention, /*recomputation=*/nullptr, routers,
                    &carried);
    if (model::HasPartFor(image_rows, layer, model.spec().hidden_size)) {
      x = {model::AddImages(model::Sum(x), image_tokens, image_rows, layer), {}};
    }
  }
  return model::Sum(x);
}

int64_t GraphRows(int64_t num_sequences) {
  if (num_sequences > kMostGraphRows) return 0;
  int64_t step = 1;
  while (8 * step < num_sequences) step *= 2;
  return (num_sequences + step - 1) / step * step;
}

absl::Status CheckDevice(at::Device device) {
  return device.is_cpu() ? absl::OkStatus() : CheckCudaDevice(device);
}

absl::StatusOr<std::unique_ptr<ForwardPass>> CreateForwardPass(const model::Transformer& model,
                                                               const model::PagedKvCache& cache,
                                                               const ForwardOptions& options) {
  if (!cache.options().device.is_cpu()) return CreateCudaForwardPass(model, cache, options);
  return std::make_unique<CpuForwardPass>(model, cache);
}

}  // namespace tandem::rollout
