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
  const int split = mesh.ep * mesh.tp;
  const int copy = mesh.num_shards() * mesh.tp;  // ranks
  for (int p = 0; p < split; ++p) {
    const PartLayout& part = layout.parts[p];
    for (const TensorBox& box : part.boxes) {
      const bool of_experts = !part.unit_of_experts.empty() && part.unit_of_experts[box.unit];
      const int num_slices = of_experts ? mesh.dp_shard : mesh.num_shards();
      const int64_t slice = part.SliceOf(box.unit, num_slices);
      const int64_t end = box.offset + box.elements();
      for (int64_t s = box.offset / slice; s * slice < end; ++s) {
        // Every expert-parallel rank has the boxes outside of experts, each with slices of its own.
        const int64_t first = of_experts ? s * split + p : s * mesh.tp + p % mesh.tp;
        if (first % split != p) continue;
        const int64_t from = std::max(box.offset, s * slice);
        const int64_t to = std::min(end, (s + 1) * slice);
        std::vector<Holding> pieces =
            PiecesOfBox(layout.tensors[box.tensor], box, from - box.offset, to - from);
        for (Holding& holding : pieces) {
          holding.block = box.unit;
          holding.offset += box.offset - s * slice;
        }
        for (int r = 0; r < mesh.dp_replicate; ++r) {
          auto& rank = out.ranks[static_cast<int64_t>(r) * copy + first];
          rank.insert(rank.end(), pieces.begin(), pieces.end());
        }
      }
    }
  }
  return out;
}

std::vector<Holding> CountedHoldings(const ModelLayout& layout, const comm::MeshShape& mesh,
                                     int rank) {
  if (rank >= mesh.num_shards() * mesh.tp) return {};
  // Tensor-parallel ranks may have the same box; those of other experts have other slices of it.
  ModelLayout of_tensor_ranks;
  of_tensor_ranks.tensors = layout.tensors;
  const auto first = layout.parts.begin() + rank / mesh.tp % mesh.ep * mesh.tp;
  of_tensor_ranks.parts.assign(first, first + mesh.tp);
  const std::vector<bool> counts = FirstOfEachBox(of_tensor_ranks)[rank % mesh.tp];
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
