#include "common/model/tile_packer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "common/device/upload.h"
#include "common/model/packed_tiles.h"
#include "common/model/vision_ops.h"

namespace tandem::model {
namespace {

// The rows between four others, in float32 and added up in one order, so that the bits are the same wherever
// they are computed.
at::Tensor Between(const std::vector<PackedOrder::Corner>& corners, const at::Tensor& rows) {
  at::Tensor sum;
  for (const PackedOrder::Corner& corner : corners) {
    const at::Tensor picked = rows.index_select(0, Numbers(corner.rows, rows.device()));
    const at::Tensor shares =
        ::tandem::device::Upload(at::tensor(corner.shares, at::kFloat), rows.device()).unsqueeze(1);
    const at::Tensor weighted = picked.to(at::kFloat) * shares;
    sum = sum.defined() ? sum + weighted : weighted;
  }
  return sum.to(rows.scalar_type());
}

}  // namespace

at::Tensor PackRows(const TileSpec& tiles, const std::vector<ImageGrid>& grids,
                    const at::Tensor& rows, const at::Tensor& newline) {
  const PackedOrder order = OrderOf(tiles, grids);
  std::vector<at::Tensor> parts = {rows};
  if (!order.corners.empty()) parts.push_back(Between(order.corners, rows));
  parts.push_back(newline.unsqueeze(0).expand({order.num_newlines, -1}));
  return at::cat(parts).index_select(0, Numbers(order.sources, rows.device()));
}

}  // namespace tandem::model
