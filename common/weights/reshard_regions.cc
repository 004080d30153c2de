#include "common/weights/reshard_regions.h"

#include <algorithm>
#include <tuple>

namespace tandem::weights {
namespace {

// Pieces that are the same belong together; nothing is cut.
std::vector<Region> MergeEqual(std::vector<RankHolding> holdings) {
  const auto key = [](const RankHolding& h) {
    const Piece& p = h.holding->piece;
    return std::tuple(p.first, p.length, p.stride, p.repeat, h.rank);
  };
  std::sort(holdings.begin(), holdings.end(),
            [&](const RankHolding& a, const RankHolding& b) { return key(a) < key(b); });
  std::vector<Region> out;
  for (const RankHolding& h : holdings) {
    if (out.empty() || !(out.back().piece == h.holding->piece)) {
      out.push_back({h.holding->piece, {}});
    }
    out.back().sources.push_back({h.rank, h.holding->block, h.holding->offset});
  }
  return out;
}

// Ranges are cut wherever one of them begins or ends.
std::vector<Region> Sweep(std::vector<RankHolding> holdings) {
  std::vector<int64_t> cuts;
  for (const RankHolding& h : holdings) {
    cuts.push_back(h.holding->piece.first);
    cuts.push_back(h.holding->piece.first + h.holding->piece.length);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::sort(holdings.begin(), holdings.end(), [](const RankHolding& a, const RankHolding& b) {
    return std::tuple(a.holding->piece.first, a.rank) < std::tuple(b.holding->piece.first, b.rank);
  });
  std::vector<Region> out;
  std::vector<RankHolding> active;
  size_t next = 0;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    std::erase_if(active, [&](const RankHolding& h) {
      return h.holding->piece.first + h.holding->piece.length <= cuts[c];
    });
    while (next < holdings.size() && holdings[next].holding->piece.first == cuts[c]) {
      active.push_back(holdings[next++]);
    }
    if (active.empty()) continue;
    const int64_t length = cuts[c + 1] - cuts[c];
    Region& region = out.emplace_back();
    region.piece = {active[0].holding->piece.tensor, cuts[c], length, length, 1};
    for (const RankHolding& h : active) {
      region.sources.push_back(
          {h.rank, h.holding->block, h.holding->offset + cuts[c] - h.holding->piece.first});
    }
    std::sort(region.sources.begin(), region.sources.end(),
              [](const Region::Source& a, const Region::Source& b) { return a.rank < b.rank; });
  }
  return out;
}

}  // namespace

std::vector<std::vector<RankHolding>> HoldingsByTensor(const Holdings& holdings) {
  std::vector<std::vector<RankHolding>> out(holdings.num_tensors);
  for (int rank = 0; rank < holdings.num_ranks(); ++rank) {
    for (const Holding& holding : holdings.ranks[rank]) {
      out[holding.piece.tensor].push_back({rank, &holding});
    }
  }
  return out;
}

std::vector<Region> RegionsOf(const std::vector<RankHolding>& holdings) {
  const bool ranges = std::all_of(holdings.begin(), holdings.end(), [](const RankHolding& h) {
    return h.holding->piece.repeat == 1;
  });
  return ranges ? Sweep(holdings) : MergeEqual(holdings);
}

}  // namespace tandem::weights
