#include "common/weights/split_wants.h"

#include <vector>

#include "common/weights/reshard_regions.h"

namespace tandem::weights {
namespace {

// Gives the holders of a region an even part each.
void SplitRegion(const Region& region, SplitWants& out) {
  const auto holders = static_cast<int64_t>(region.sources.size());
  const int64_t elements = region.piece.elements();
  const bool whole = elements < holders * kLeastPart;
  const int64_t part = whole ? elements : (elements + holders - 1) / holders;
  // Regions too small to split are spread over the holders by their tensor's number.
  size_t owner = whole ? region.piece.tensor % holders : 0;
  int64_t room = part;
  int64_t done = 0;
  PieceCutter cutter(region.piece, {}, {});
  while (cutter.left() > 0) {
    Piece piece;
    Place unused;
    cutter.Take(room, piece, unused, unused);
    for (size_t i = 0; i < region.sources.size(); ++i) {
      const Region::Source& source = region.sources[i];
      (i == owner ? out.first : out.rest)
          .ranks[source.rank]
          .push_back({piece, source.block, source.offset + done});
    }
    done += piece.elements();
    room -= piece.elements();
    if (room == 0) {
      ++owner;
      room = part;
    }
  }
}

}  // namespace

SplitWants SplitWantsOf(const Holdings& replica) {
  SplitWants out;
  for (Holdings* holdings : {&out.first, &out.rest}) {
    holdings->num_tensors = replica.num_tensors;
    holdings->columns = replica.columns;
    holdings->ranks.resize(replica.num_ranks());
  }
  for (const std::vector<RankHolding>& tensor : HoldingsByTensor(replica)) {
    for (const Region& region : RegionsOf(tensor)) SplitRegion(region, out);
  }
  return out;
}

}  // namespace tandem::weights
