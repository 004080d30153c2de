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

// Tiles whose rows are those of so many patches, each row that of a class token included.
int64_t TilesOf(const model::VisionSpec& vision, int64_t num_patches) {
  const int64_t rows = num_patches / vision.patches_per_row();
  return (rows + vision.rows_per_tile() - 1) / vision.rows_per_tile();
}

int64_t PatchesOf(const model::VisionSpec& vision, int64_t num_patches) {
  if (!vision.tiles.has_value()) return num_patches;
  return TilesOf(vision, num_patches) * vision.tiles->side * vision.tiles->side;
}

int64_t TokensOf(const model::VisionSpec& vision, int64_t num_patches) {
  if (!vision.tiles.has_value()) return num_patches;
  return TilesOf(vision, num_patches) * vision.tiles->tokens();
}

int64_t RowsOf(const model::VisionSpec& vision, int64_t num_patches) {
  if (!vision.tiles.has_value()) return num_patches / vision.patches_per_row();
  return TilesOf(vision, num_patches) * vision.rows_per_tile();
}

}  // namespace

TowerMemory::TowerMemory(MemoryLedger& ledger, const model::ParameterTable& table,
                         const CountedBatch& text, const ImageLoad& load)
    : ledger_(ledger),
      table_(table.spec(), table.unit_limits()),
      vision_(*table.spec().vision),
      load_(load),
      patches_(BatchOf(text, PatchesOf(vision_, load.patches), vision_.hidden_size)),
      batch_(BatchOf(text, TokensOf(vision_, load.patches), vision_.hidden_size)),
      rows_(BatchOf(text, RowsOf(vision_, load.patches), vision_.merged_size())) {}

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

// Four vectors of each patch, weighted and added up in float32 one after another.
CountedTensor TowerMemory::AddPositions(const CountedTensor& x, CountedTape* tape) {
  constexpr int kCorners = 4;
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  const int64_t floats = batch_.tokens * vision_.hidden_size * kFloat32Bytes;
  const bool widens = batch_.element_bytes != kFloat32Bytes;
  Size sum;
  for (int corner = 0; corner < kCorners; ++corner) {
    Size weighted;
    {
      const Size picked = take(x.bytes());
      const Size wide = take(widens ? floats : 0);
      weighted = take(floats);
    }
    sum = sum == nullptr ? std::move(weighted) : take(floats);
  }
  const Size narrowed = take(widens ? x.bytes() : 0);
  const CountedTensor out(take(x.bytes()), x.bytes());
  if (tape != nullptr) {
    tape->Record([this, take, floats, widens, x = x.gradient(), gradient = out.gradient()] {
      const Size grad = gradient->Take();
      const int positions = table_.vision().positions;
      if (table_.parameter(positions).trainable) {
        const Size wide = take(widens ? floats : 0);
        const Size weighted = take(floats);
        const int64_t bytes = table_.parameter(positions).numel * batch_.element_bytes;
        const Size of_corner = ledger_.Take(MemoryKind::kGradientBuffers, bytes);
        gradients_.push_back(ledger_.Take(MemoryKind::kGradientBuffers, bytes));
      }
      if (x != nullptr) x->Give(grad);
    });
  }
  return out;
}

// x: [num_patches, tower's hidden]; `norm`: whether its norm sees a row or a patch. Returns
// [num_rows, hidden].
CountedTensor TowerMemory::Merge(const CountedTensor& in, const model::MergerParameters& at,
                                 const CountedBatch& norm, CountedTape* tape) {
  const model::AttentionSpec& attention = vision_.layers.front().attention;
  const CountedTensor x = vision_.averages_patches ? MeansOfRows(in, tape) : in;
  const CountedTensor normed =
      vision_.merger_norm.has_value()
          ? OpsOf(norm, attention, tape).Normalize(x, *vision_.merger_norm, at.norm)
          : x;
  CountedOps& ops = OpsOf(rows_, attention, tape);
  CountedTensor merged = normed;
  if (vision_.reduces_patches) {
    merged = ops.Replicated(Reordered(normed, tape), at.reduce_weight, /*bias=*/-1);
  }
  if (vision_.merger_is_matrix) return ops.Replicated(merged, at.down_weight, at.down_bias);
  const CountedTensor up = ops.Replicated(merged, at.up_weight, at.up_bias);
  const model::FeedForwardSpec function{.activation = vision_.merger_activation, .gated = false};
  return ops.Replicated(ops.Activate(up, function, /*alphas=*/-1), at.down_weight, at.down_bias);
}

// Rows side by side; a part's gradient is a view of the whole.
CountedTensor TowerMemory::Joined(const std::vector<CountedTensor>& parts, CountedTape* tape) {
  if (parts.size() == 1) return parts.front();
  int64_t bytes = 0;
  std::vector<std::shared_ptr<CountedGradient>> gradients;
  for (const CountedTensor& part : parts) {
    bytes += part.bytes();
    gradients.push_back(part.gradient());
  }
  const CountedTensor out(ledger_.Take(MemoryKind::kActivations, bytes), bytes);
  if (tape != nullptr) {
    tape->Record([gradients = std::move(gradients), gradient = out.gradient()] {
      const Size grad = gradient->Take();
      for (const std::shared_ptr<CountedGradient>& part : gradients) part->Give(grad);
    });
  }
  return out;
}

Size TowerMemory::Forward(bool has_graph) {
  CountedTape* const tape = has_graph ? &tape_ : nullptr;
  if (vision_.tiles.has_value()) {
    const CountedTensor rows = Tiles(tape);
    if (has_graph) result_gradient_ = rows.gradient();
    return *rows.storage();
  }
  const model::VisionParameters& at = table_.vision();
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  const int64_t typed_bytes = TypedPixelBytes();
  CountedTensor x = OpsOf(batch_, vision_.layers.front().attention, tape)
                        .Replicated(CountedTensor(take(typed_bytes), typed_bytes).Constant(),
                                    at.patch_weight, at.patch_bias);
  if (at.positions >= 0) x = AddPositions(x, tape);
  if (vision_.first_norm.has_value()) {
    x = OpsOf(batch_, vision_.layers.front().attention, tape)
            .Normalize(x, *vision_.first_norm, at.first_norm);
  }
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
  std::vector<CountedTensor> parts(1);  // the first is the last to be made
  for (int64_t i = 0; i < vision_.num_layers(); ++i) {
    const model::LayerSpec& layer = vision_.layers[static_cast<size_t>(i)];
    stream = model::LayerForward(OpsOf(batch_, layer.attention, tape), layer,
                                 at.layers[static_cast<size_t>(i)], stream);
    const size_t next = parts.size() - 1;
    if (next == at.deepstack.size() || vision_.deepstack_layers[next] != i) continue;
    stream = {OpsOf(batch_, layer.attention, tape).Sum(stream), {}};
    parts.push_back(Merge(stream.x, at.deepstack[next], rows_, tape));
  }
  CountedOps& last = OpsOf(batch_, vision_.layers.back().attention, tape);
  parts.front() = Merge(last.Sum(stream), at.merger, batch_, tape);
  const CountedTensor rows = Joined(parts, tape);
  parts.clear();
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
