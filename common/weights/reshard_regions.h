// Regions: a tensor cut into disjoint pieces, each held completely by all of its holders. The first
// step of a reshard plan (reshard_plan.h).
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_REGIONS_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_REGIONS_H_

#include <cstdint>
#include <vector>

#include "common/weights/holdings.h"

namespace tandem::weights {

struct Region {
  // A rank that holds the piece, and the location of its first element.
  struct Source {
    int32_t rank = 0;
    int32_t block = 0;
    int64_t offset = 0;
  };
  Piece piece;
  std::vector<Source> sources;  // by rank
};

// A holding and its rank.
struct RankHolding {
  int32_t rank = 0;
  const Holding* holding = nullptr;
};

// Groups all holdings of all ranks by tensor.
std::vector<std::vector<RankHolding>> HoldingsByTensor(const Holdings& holdings);

// Returns the regions of one tensor, ordered by first element. The holdings must be contiguous
// ranges, or pieces that are pairwise identical or disjoint.
std::vector<Region> RegionsOf(const std::vector<RankHolding>& holdings);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_REGIONS_H_
