// What several ranks of a replica hold alike (norms, routers) comes to the replica once: each of
// them gets an even part, and they exchange the parts among themselves, over links that are faster
// than those by which it came. Without this the one trainer rank that has a layer's norms would
// send them to every tensor-parallel rank, and with many ranks that is more than all else that it
// sends.
#ifndef TANDEM_COMMON_WEIGHTS_SPLIT_WANTS_H_
#define TANDEM_COMMON_WEIGHTS_SPLIT_WANTS_H_

#include "common/weights/holdings.h"

namespace tandem::weights {

struct SplitWants {
  Holdings first;  // disjoint; together all that the replica holds
  Holdings rest;   // what each rank lacks then, which others of the replica have
};

// Places are those of `replica`. Parts have at least kLeastPart elements; what is smaller goes
// whole to one of its holders.
inline constexpr int64_t kLeastPart = 8;
SplitWants SplitWantsOf(const Holdings& replica);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_SPLIT_WANTS_H_
