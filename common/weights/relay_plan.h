// RelayPlan: how a replica's ranks relay an update, while receiving it, to a replica with another
// split. A rank cuts each message it receives by receiver and forwards the parts on arrival.
//
//   ASSIGN_OR_RETURN(ReshardPlan feed, MakeReshardPlan(trainer, RolloutHoldings(four), options));
//   ASSIGN_OR_RETURN(RelayPlan to_two, MakeRelayPlan(feed, four, two));
//   ASSIGN_OR_RETURN(RelayPlan to_one, MakeRelayPlan(to_two.hop, two, one));
//
// Only one rank forwards data that several ranks hold, balanced as in a reshard plan, so a receiver
// gets each element that it holds once. The hop's messages keep the order of the messages they are
// cut from. All ranks of all hops thus share one order, so no wait cycle (deadlock) can form.
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
  // By message of the hop: index (from 0) of the sender's own message that must arrive first.
  std::vector<int32_t> after;
};

// `feed` delivers `from` its parts, one receiver per rank. INVALID_ARGUMENT if `feed` is the plan
// of another layout, or the layouts belong to different models; also the errors of
// MakeReshardPlan(). `brings`: by tensor, whether the feed brings it; empty: it brings all.
absl::StatusOr<RelayPlan> MakeRelayPlan(const ReshardPlan& feed, const ModelLayout& from,
                                        const ModelLayout& to,
                                        const std::vector<bool>& brings = {});

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RELAY_PLAN_H_
