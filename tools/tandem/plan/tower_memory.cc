#include "tools/tandem/plan/tower_memory.h"

#include <utility>

#include "common/model/layers/layer_forward.h"

namespace tandem::plan {
namespace {

constexpr int64_t kFloat32Bytes = 4;  // of an element

CountedBatch BatchOf(const CountedBatch& text, int64_t tokens, int64_t hidden) {
  CountedBatch batch;
  batch.tokens = batch.attention_tokens = batch.longest_sequence = tokens;
  batch.hidden = hidden;
  batch.element_bytes = text.element_bytes;
  batch.kernels = text.kernels;
  return batch;
}

}  // namespace

TowerMemory::TowerMemory(MemoryLedger& ledger, const model::ParameterTable& table,
                         const CountedBatch& text, int64_t num_patches)
    : ledger_(ledger),
      table_(table.spec(), table.unit_limits()),
      vision_(*table.spec().vision),
      batch_(BatchOf(text, num_patches, vision_.hidden_size)),
      rows_(BatchOf(text, num_patches / vision_.patches_per_row(), vision_.merged_size())) {}

CountedOps& TowerMemory::OpsOf(const CountedBatch& batch, const model::AttentionSpec& attention,
                               CountedTape* tape) {
  return *ops_.emplace_back(std::make_unique<CountedOps>(ledger_, table_, batch, attention, tape,
                                                         /*recomputation=*/nullptr, gradients_));
}

CountedTensor TowerMemory::Reordered(const CountedTensor& x, CountedTape* tape) {
  const CountedTensor out(ledger_.Take(MemoryKind::kActivations, x.bytes()), x.bytes());
  if (tape != nullptr) {
    tape->Record([this, bytes = x.bytes(), x = x.gradient(), gradient = out.gradient()] {
      const Size grad = gradient->Take();
      if (x != nullptr) x->Give(ledger_.Take(MemoryKind::kActivations, bytes));
    });
  }
  return out;
}

// x: [num_patches, tower's hidden]. Returns [num_rows, hidden].
CountedTensor TowerMemory::Merge(const CountedTensor& x, CountedTape* tape) {
  const model::VisionParameters& at = table_.vision();
  const model::AttentionSpec& attention = vision_.layers.front().attention;
  // The norm is a patch's; the products are a row's.
  const CountedTensor normed =
      OpsOf(batch_, attention, tape).Normalize(x, vision_.merger_norm, at.merger_norm);
  CountedOps& ops = OpsOf(rows_, attention, tape);
  const CountedTensor up = ops.Replicated(normed, at.merger_up_weight, at.merger_up_bias);
  const model::FeedForwardSpec gelu{.activation = model::Activation::kGelu, .gated = false};
  return ops.Replicated(ops.Activate(up, gelu, /*alphas=*/-1), at.merger_down_weight,
                        at.merger_down_bias);
}

Size TowerMemory::Forward(bool has_graph) {
  CountedTape* const tape = has_graph ? &tape_ : nullptr;
  const model::VisionParameters& at = table_.vision();
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  // In the tower's type, which in float32 the pixels are of already.
  const int64_t typed_bytes =
      batch_.element_bytes == kFloat32Bytes ? 0 : batch_.Bytes(vision_.patch_elements());
  CountedTensor x = OpsOf(batch_, vision_.layers.front().attention, tape)
                        .Replicated(CountedTensor(take(typed_bytes), typed_bytes).Constant(),
                                    at.patch_weight, -1);
  // Cosines and sines of half a head's width each, made of those of rows and of columns.
  const int64_t angle_bytes =
      batch_.tokens * vision_.layers.front().attention.head_dim * kFloat32Bytes;
  Size angles;
  {
    const Size parts = take(angle_bytes);
    angles = take(angle_bytes);
  }
  if (vision_.window_size > 0) {
    x = Reordered(x, tape);
    angles = take(angle_bytes);
  }
  if (has_graph) angles_ = angles;

  CountedOps::Residual stream{x, {}};
  for (int64_t i = 0; i < vision_.num_layers(); ++i) {
    const model::LayerSpec& layer = vision_.layers[static_cast<size_t>(i)];
    stream = model::LayerForward(OpsOf(batch_, layer.attention, tape), layer,
                                 at.layers[static_cast<size_t>(i)], stream);
  }
  CountedOps& last = OpsOf(batch_, vision_.layers.back().attention, tape);
  const CountedTensor rows = Merge(last.Sum(stream), tape);
  const CountedTensor result = vision_.window_size > 0 ? Reordered(rows, tape) : rows;
  // Nothing saves the rows themselves.
  if (has_graph) result_gradient_ = result.gradient();
  return *result.storage();
}

std::vector<Size> TowerMemory::Backward(Size gradient) {
  result_gradient_->Give(std::move(gradient));
  tape_.Backward();
  angles_ = nullptr;
  return std::move(gradients_);
}

}  // namespace tandem::plan
