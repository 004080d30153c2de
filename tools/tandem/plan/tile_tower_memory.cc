// The memory of a tower that sees tiles (common/model/tile_tower.h): operations are those of EncodeTiles(),
// in its order.
#include <cstdint>
#include <utility>

#include "common/model/layers/layer_forward.h"
#include "tools/tandem/plan/tower_memory.h"

namespace tandem::plan {
namespace {

constexpr int64_t kBytesOfFloat = 4;

}  // namespace

// Class tokens are put before the patches, then positions are added.
CountedTensor TowerMemory::EmbedTiles(const CountedTensor& patches, CountedTape* tape) {
  const model::VisionParameters& at = table_.vision();
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  const int64_t bytes = batch_.Bytes(vision_.hidden_size);
  CountedTensor out;
  {
    const Size joined = take(vision_.tiles->class_token ? bytes : 0);
    out = CountedTensor(take(bytes), bytes);
  }
  if (tape != nullptr) {
    tape->Record([this, at, patches, take, gradient = out.gradient()] {
      const Size grad = gradient->Take();
      for (const int parameter : {at.positions, at.class_token}) {
        if (parameter < 0 || !table_.parameter(parameter).trainable) continue;
        gradients_.push_back(
            ledger_.Take(MemoryKind::kGradientBuffers,
                         table_.parameter(parameter).numel * batch_.element_bytes));
      }
      // Without the class tokens they are rows apart, which the product copies.
      if (patches.gradient() == nullptr) return;
      patches.gradient()->Give(vision_.tiles->class_token ? take(patches.bytes()) : grad);
    });
  }
  if (!vision_.first_norm.has_value()) return out;
  return OpsOf(batch_, vision_.layers.front().attention, tape)
      .Normalize(out, *vision_.first_norm, at.first_norm);
}

CountedTensor TowerMemory::WithoutClassToken(const CountedTensor& x, CountedTape* tape) {
  if (!vision_.tiles->class_token || vision_.tiles->keeps_class_token) return x;
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  const int64_t bytes = patches_.Bytes(vision_.hidden_size);
  const CountedTensor out(take(bytes), bytes);
  if (tape != nullptr) {
    tape->Record([take, bytes = x.bytes(), x = x.gradient(), gradient = out.gradient()] {
      const Size grad = gradient->Take();
      if (x != nullptr) x->Give(take(bytes));
    });
  }
  return out;
}

// Sums in float32, in place but for the first; their gradient is that of every patch, put together again.
CountedTensor TowerMemory::MeansOfRows(const CountedTensor& x, CountedTape* tape) {
  if (vision_.patches_per_row() == 1) return x;
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  const bool widens = rows_.element_bytes != kBytesOfFloat;
  const int64_t wide_bytes = patches_.tokens * vision_.hidden_size * kBytesOfFloat;
  const int64_t sum_bytes = rows_.tokens * vision_.hidden_size * kBytesOfFloat;
  const int64_t bytes = rows_.Bytes(vision_.hidden_size);
  CountedTensor out;
  {
    const Size wide = take(widens ? wide_bytes : 0);
    const Size sum = take(sum_bytes);
    out = CountedTensor(widens ? take(bytes) : sum, bytes);
  }
  if (tape != nullptr) {
    tape->Record([take, widens, wide_bytes, sum_bytes, bytes = x.bytes(), x = x.gradient(),
                  gradient = out.gradient()] {
      const Size grad = gradient->Take();
      if (x == nullptr) return;
      const Size wide = take(widens ? sum_bytes : 0);
      const Size divided = take(sum_bytes);
      const Size stacked = take(wide_bytes);
      x->Give(widens ? take(bytes) : stacked);
    });
  }
  return out;
}

// Rows are interpolated in float32, four of the tiles' each; then all are put side by side, and each image's
// taken from among them.
CountedTensor TowerMemory::Packed(const CountedTensor& x, CountedTape* tape) {
  constexpr int kCorners = 4;
  const auto take = [this](int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); };
  const int64_t row_bytes = table_.spec().hidden_size * rows_.element_bytes;
  const int64_t between = load_.between * row_bytes;
  const int64_t floats = load_.between * table_.spec().hidden_size * kBytesOfFloat;
  const bool widens = rows_.element_bytes != kBytesOfFloat;
  const int64_t source = x.bytes() + between + load_.newlines * row_bytes;
  CountedTensor out;
  {
    Size sum;
    for (int corner = 0; between > 0 && corner < kCorners; ++corner) {
      Size weighted;
      {
        const Size picked = take(between);
        const Size wide = take(widens ? floats : 0);
        weighted = take(floats);
      }
      sum = sum == nullptr ? std::move(weighted) : take(floats);
    }
    const Size narrowed = take(widens ? between : 0);
    const Size joined = take(source);
    out = CountedTensor(take(load_.rows * row_bytes), load_.rows * row_bytes);
  }
  if (tape != nullptr) {
    tape->Record([this, take, source, between, floats, widens, bytes = x.bytes(), x = x.gradient(),
                  gradient = out.gradient()] {
      Size grad = gradient->Take();
      Size of_source = take(source);
      grad = nullptr;
      const int newline = table_.vision().newline;
      if (table_.parameter(newline).trainable) {
        gradients_.push_back(ledger_.Take(MemoryKind::kGradientBuffers,
                                          table_.parameter(newline).numel * rows_.element_bytes));
      }
      if (x == nullptr) return;
      if (between == 0) {
        x->Give(of_source);
        return;
      }
      const Size wide = take(widens ? floats : 0);
      const Size weighted = take(floats);
      const Size of_corner = take(bytes);
      x->Give(take(bytes));
    });
  }
  return out;
}

CountedTensor TowerMemory::Tiles(CountedTape* tape) {
  const model::VisionParameters& at = table_.vision();
  const model::TileSpec& tiles = *vision_.tiles;
  const model::AttentionSpec& attention = vision_.layers.front().attention;
  const int64_t typed_bytes = TypedPixelBytes();
  CountedOps::Residual stream;
  {
    const CountedTensor pixels(ledger_.Take(MemoryKind::kActivations, typed_bytes), typed_bytes);
    stream.x = EmbedTiles(OpsOf(patches_, attention, tape)
                              .Replicated(pixels.Constant(), at.patch_weight, at.patch_bias),
                          tape);
  }
  for (int64_t i = 0; i < tiles.num_read_layers; ++i) {
    const model::LayerSpec& layer = vision_.layers[static_cast<size_t>(i)];
    stream = model::LayerForward(OpsOf(batch_, layer.attention, tape), layer,
                                 at.layers[static_cast<size_t>(i)], stream);
  }
  CountedTensor x = OpsOf(batch_, attention, tape).Sum(stream);
  stream = {};
  if (vision_.last_norm.has_value()) {
    x = OpsOf(batch_, attention, tape).Normalize(x, *vision_.last_norm, at.last_norm);
  }
  x = WithoutClassToken(x, tape);
  x = Merge(x, at.merger, rows_, tape);
  return tiles.canvas.has_value() ? Packed(x, tape) : x;
}

}  // namespace tandem::plan
