// ShardExtent: how many elements of a unit each rank owns. The unit is padded at its end, so that
// every rank owns as many.
#ifndef TANDEM_COMMON_SHARDING_SHARD_EXTENT_H_
#define TANDEM_COMMON_SHARDING_SHARD_EXTENT_H_

#include <cstdint>

namespace tandem::sharding {

struct ShardExtent {
  int64_t owned = 0;   // by each rank
  int64_t padded = 0;  // owned * ranks
};

// `numel`: of the unit without padding; `ranks`: that share one copy of the model.
inline ShardExtent ExtentOf(int64_t numel, int64_t ranks) {
  const int64_t owned = (numel + ranks - 1) / ranks;
  return {owned, owned * ranks};
}

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_SHARD_EXTENT_H_
