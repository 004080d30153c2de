// Splits data that several ranks of a replica share (norms, routers) so that it enters the replica
// once: each rank receives an even part, and the ranks exchange the parts over their faster local
// links. Otherwise the one trainer rank that has a layer's norms would send them to every
// tensor-parallel rank, which with many ranks exceeds everything else it sends.
#ifndef TANDEM_COMMON_WEIGHTS_SPLIT_WANTS_H_
#define TANDEM_COMMON_WEIGHTS_SPLIT_WANTS_H_

#include "common/weights/holdings.h"

namespace tandem::weights {

struct SplitWants {
  Holdings first;  // disjoint; their union is all that the replica holds
  Holdings rest;   // what each rank then still lacks; other ranks of the replica have it
};

// Places refer to `replica`. Parts have at least kLeastPart elements; smaller data goes whole to
// one of its holders.
inline constexpr int64_t kLeastPart = 8;
SplitWants SplitWantsOf(const Holdings& replica);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_SPLIT_WANTS_H_
