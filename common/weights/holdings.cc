#include "common/weights/holdings.h"

#include <algorithm>
#include <utility>

namespace tandem::weights {

std::vector<Holding> PiecesOfBox(const LogicalTensor& tensor, const TensorBox& box, int64_t first,
                                 int64_t count) {
  std::vector<Holding> out;
  if (count <= 0) return out;
  const int64_t start = box.first_row * tensor.columns + box.first_column;
  if (box.columns == tensor.columns) {
    out.push_back({{box.tensor, start + first, count, count, 1}, box.tensor, first});
    return out;
  }
  // The rows before `first` are passed over, then the rest is taken.
  const int64_t rows_before = first / box.columns;
  const int64_t into_row = first - rows_before * box.columns;
  int64_t left = count;
  for (int64_t row = rows_before, column = into_row; left > 0;) {
    Piece piece{box.tensor, start + row * tensor.columns + column};
    const int64_t offset = row * box.columns + column;
    if (column > 0 || left < box.columns) {
      piece.length = piece.stride = std::min(left, box.columns - column);
      row += 1;
      column = 0;
    } else {
      piece.length = box.columns;
      piece.repeat = left / box.columns;
      piece.stride = piece.repeat == 1 ? piece.length : tensor.columns;
      row += piece.repeat;
    }
    left -= piece.elements();
    out.push_back({piece, box.tensor, offset});
  }
  return out;
}

namespace {

Holdings OfNobody(const ModelLayout& layout) {
  Holdings out;
  out.num_tensors = static_cast<int>(layout.tensors.size());
  for (const LogicalTensor& tensor : layout.tensors) out.columns.push_back(tensor.columns);
  return out;
}

}  // namespace

Holdings TrainerHoldings(const ModelLayout& layout, const comm::MeshShape& mesh) {
  Holdings out = OfNobody(layout);
  out.ranks.resize(mesh.size());
  for (int t = 0; t < mesh.tp; ++t) {
    for (const TensorBox& box : layout.parts[t].boxes) {
      const int64_t unit = layout.parts[t].unit_elements[box.unit];
      const int64_t slice = (unit + mesh.dp_shard - 1) / mesh.dp_shard;
      const int64_t end = box.offset + box.elements();
      for (int64_t s = box.offset / slice; s * slice < end; ++s) {
        const int64_t from = std::max(box.offset, s * slice);
        const int64_t to = std::min(end, (s + 1) * slice);
        std::vector<Holding> pieces =
            PiecesOfBox(layout.tensors[box.tensor], box, from - box.offset, to - from);
        for (Holding& holding : pieces) {
          holding.block = box.unit;
          holding.offset += box.offset - s * slice;
        }
        for (int r = 0; r < mesh.dp_replicate; ++r) {
          auto& rank = out.ranks[(static_cast<int64_t>(r) * mesh.dp_shard + s) * mesh.tp + t];
          rank.insert(rank.end(), pieces.begin(), pieces.end());
        }
      }
    }
  }
  return out;
}

std::vector<Holding> CountedHoldings(const ModelLayout& layout, const comm::MeshShape& mesh,
                                     int rank) {
  if (rank >= mesh.dp_shard * mesh.tp) return {};
  const std::vector<bool> counts = FirstOfEachBox(layout)[rank % mesh.tp];
  std::vector<Holding> out = std::move(TrainerHoldings(layout, mesh).ranks[rank]);
  std::erase_if(out, [&counts](const Holding& held) { return !counts[held.piece.tensor]; });
  return out;
}

Holdings RolloutHoldings(const ModelLayout& layout) {
  Holdings out = OfNobody(layout);
  for (const PartLayout& part : layout.parts) {
    std::vector<Holding>& rank = out.ranks.emplace_back();
    for (const TensorBox& box : part.boxes) {
      for (const Holding& holding :
           PiecesOfBox(layout.tensors[box.tensor], box, 0, box.elements())) {
        rank.push_back(holding);
      }
    }
  }
  return out;
}

}  // namespace tandem::weights
