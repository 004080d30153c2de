#include "services/trainer/optim/make_optimizer.h"

#include "absl/strings/str_cat.h"
#include "services/trainer/optim/adamw.h"
#include "services/trainer/optim/muon.h"

namespace tandem::trainer {
namespace {

AdamWOptions AdamWOptionsOf(const config::v1::OptimConfig& config) {
  AdamWOptions out;
  if (config.betas_size() == 2) {
    out.beta1 = config.betas(0);
    out.beta2 = config.betas(1);
  }
  out.eps = config.eps();
  out.weight_decay = config.weight_decay();
  out.grad_clip = config.grad_clip();
  return out;
}

MuonOptions MuonOptionsOf(const config::v1::OptimConfig& config) {
  const config::v1::MuonConfig& muon = config.muon();
  MuonOptions out;
  out.adamw = AdamWOptionsOf(config);
  if (muon.lr() > 0 && config.lr() > 0) out.lr_ratio = muon.lr() / config.lr();
  out.momentum = muon.momentum();
  out.nesterov = muon.nesterov();
  out.weight_decay = muon.weight_decay();
  out.ns_steps = muon.ns_steps();
  if (muon.adjust_lr_fn() == config::v1::MUON_ADJUST_LR_ORIGINAL) out.scale = MuonScale::kOriginal;
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const config::v1::OptimConfig& config,
                                                         ShardedModel& model,
                                                         const comm::DeviceMesh& mesh,
                                                         double vision_lr) {
  if (config.name() != config::v1::OPTIMIZER_NAME_MUON) {
    AdamWOptions options = AdamWOptionsOf(config);
    if (vision_lr > 0) options.vision_lr_ratio = vision_lr / config.lr();
    return std::make_unique<AdamW>(options, model, mesh);
  }
  if (mesh.shape().tp > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("optim.name: muon updates whole matrices, and a trainer.mesh_shape with tp ",
                     mesh.shape().tp, " splits them; use dp_shard in place of tp, or adamw"));
  }
  return std::make_unique<Muon>(MuonOptionsOf(config), model, mesh);
}

}  // namespace tandem::trainer
