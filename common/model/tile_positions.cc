#include "common/model/tile_positions.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>

namespace tandem::model {

std::vector<int64_t> PlacesOnSide(const TileSpec& tiles) {
  at::Tensor places = at::arange(tiles.side, at::kLong);
  if (tiles.positions_by_share) {
    // The operations of Idefics3VisionEmbeddings, on a CPU: some shares are rounded below the end that
    // they are, and the rounding of ends depends on how they are computed.
    const double step = 1.0 / static_cast<double>(tiles.side);
    const at::Tensor ends = at::arange(step, 1.0, step, at::kFloat);
    const at::Tensor shares = places.to(at::kFloat) * (1.0F / static_cast<float>(tiles.side));
    places = at::bucketize(shares.clamp_max(1.0 - 1e-6), ends, /*out_int32=*/false, /*right=*/true);
  }
  const auto* const data = places.const_data_ptr<int64_t>();
  return {data, data + tiles.side};
}

}  // namespace tandem::model
