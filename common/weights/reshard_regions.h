// Regions: a tensor cut into disjoint pieces, each held whole by all of its holders. The first step
// of a reshard plan (reshard_plan.h).
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_REGIONS_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_REGIONS_H_

#include <cstdint>
#include <vector>

#include "common/weights/holdings.h"

namespace tandem::weights {

struct Region {
  // A rank that has the piece, and where its first element lies.
  struct Source {
    int32_t rank = 0;
    int32_t block = 0;
    int64_t offset = 0;
  };
  Piece piece;
  std::vector<Source> sources;  // by rank
};

// A holding and whose it is.
struct RankHolding {
  int32_t rank = 0;
  const Holding* holding = nullptr;
};

// By tensor: all holdings of all ranks.
std::vector<std::vector<RankHolding>> HoldingsByTensor(const Holdings& holdings);

// The regions of one tensor, in order of their first element. What all ranks hold of it must be
// contiguous ranges, or pieces of which any two are the same or disjoint.
std::vector<Region> RegionsOf(const std::vector<RankHolding>& holdings);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_REGIONS_H_
