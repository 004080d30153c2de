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

CountedTensor TowerMemory::Tiles(CountedTape* tape) {
  const model::VisionParameters& at = table_.vision();
  const model::TileSpec& tiles = *vision_.tiles;
  const model::AttentionSpec& attention = vision_.layers.front().attention;
  // In the tower's type, which in float32 the pixels are of already.
  const int64_t typed_bytes =
      patches_.element_bytes == kBytesOfFloat ? 0 : patches_.Bytes(vision_.patch_elements());
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
  x = WithoutClassToken(x, tape);
  return Merge(x, at.merger, rows_, tape);
}

}  // namespace tandem::plan
