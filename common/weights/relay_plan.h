// RelayPlan: what the ranks of a replica pass on to a replica that is split otherwise, while they
// receive it themselves. Each message that a rank gets is cut into what every rank of the other
// replica wants of it, and is passed on when it has arrived.
//
//   ASSIGN_OR_RETURN(ReshardPlan feed, MakeReshardPlan(trainer, RolloutHoldings(four), options));
//   ASSIGN_OR_RETURN(RelayPlan to_two, MakeRelayPlan(feed, four, two));
//   ASSIGN_OR_RETURN(RelayPlan to_one, MakeRelayPlan(to_two.hop, two, one));
//
// What several ranks hold alike is passed on by one of them, shared out as in a reshard plan, so
// every receiver gets each element that it holds once. The order of the hop's messages is that of
// the messages they are cut from: all ranks of all hops have one order, and none ever waits for a
// rank that waits for it.
#ifndef TANDEM_COMMON_WEIGHTS_RELAY_PLAN_H_
#define TANDEM_COMMON_WEIGHTS_RELAY_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/model_layout.h"
#include "common/weights/reshard_plan.h"

namespace tandem::weights {

struct RelayPlan {
  ReshardPlan hop;  // from the ranks of one replica to those of the other
  // By message of the hop: after the arrival of which of its sender's own messages, counted from 0.
  std::vector<int32_t> after;
};

// `feed` brings `from` its parts, one rank of it for each receiver. Errors: INVALID_ARGUMENT where
// it is the plan of another layout, or the layouts are of different models; those of
// MakeReshardPlan().
absl::StatusOr<RelayPlan> MakeRelayPlan(const ReshardPlan& feed, const ModelLayout& from,
                                        const ModelLayout& to);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RELAY_PLAN_H_
