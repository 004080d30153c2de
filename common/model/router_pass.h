// RouterPass: what a forward pass tells about its routers, and what it is told.
//
//   RouterPass routers{.load = &load};
//   x = model.Block(params, layer, x, rotary, attention, nullptr, &routers);
#ifndef TANDEM_COMMON_MODEL_ROUTER_PASS_H_
#define TANDEM_COMMON_MODEL_ROUTER_PASS_H_

#include "common/model/expert_load.h"
#include "common/model/expert_recorder.h"
#include "common/model/expert_replay.h"
#include "common/model/expert_use.h"
#include "common/model/router_losses.h"

namespace tandem::model {

// What is null is left out.
struct RouterPass {
  ExpertLoad* load = nullptr;            // counts the rows of experts
  RouterLosses* losses = nullptr;        // the routers' auxiliary losses
  ExpertUse* use = nullptr;              // counts choices
  ExpertRecorder* recorder = nullptr;    // writes down choices
  const ExpertReplay* replay = nullptr;  // replaces choices
  bool is_recomputed = false;            // losses and use have this layer's tokens already
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROUTER_PASS_H_
