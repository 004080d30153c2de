#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/checks/checks.h"

namespace tandem::config {
namespace {

constexpr int64_t kMaxNewtonSchulzSteps = 100;

}  // namespace

void CheckMiniBatch(const std::string& key, int64_t mini_batch, int64_t batch, Checker* check) {
  check->Integer(key, mini_batch, 0);
  if (mini_batch > 0 && batch > 0 && batch % mini_batch != 0) {
    check->Fail(
        key, absl::StrFormat("expected a divisor of data.train_batch_size (%d prompts), found %d; "
                             "0 takes the whole batch",
                             batch, mini_batch));
  }
}

void CheckOptim(const std::string& section, const v1::OptimConfig& optim, Checker* check) {
  check->AtLeastZero(section + "lr", optim.lr());
  check->AtLeastZero(section + "weight_decay", optim.weight_decay());
  check->AtLeastZero(section + "grad_clip", optim.grad_clip());
  check->Number(section + "eps", optim.eps(), optim.eps() > 0, "> 0");
  check->Integer(section + "warmup_steps", optim.warmup_steps(), 0);
  check->Number(section + "min_lr_ratio", optim.min_lr_ratio(),
                optim.min_lr_ratio() >= 0 && optim.min_lr_ratio() <= 1, "in [0, 1]");
  const v1::MuonConfig& muon = optim.muon();
  check->AtLeastZero(section + "muon.lr", muon.lr());
  if (optim.name() == v1::OPTIMIZER_NAME_MUON && muon.lr() > 0 && optim.lr() == 0) {
    check->Fail(section + "muon.lr", absl::StrCat("expected 0 with ", section, "lr 0"));
  }
  check->Number(section + "muon.momentum", muon.momentum(),
                muon.momentum() >= 0 && muon.momentum() < 1, "in [0, 1)");
  check->AtLeastZero(section + "muon.weight_decay", muon.weight_decay());
  check->Integer(section + "muon.ns_steps", muon.ns_steps(), 1, kMaxNewtonSchulzSteps);
  if (optim.betas_size() != 2) {
    check->Fail(section + "betas",
                absl::StrFormat("expected two numbers in [0, 1), found %d", optim.betas_size()));
    return;
  }
  for (const double beta : optim.betas()) {
    check->Number(section + "betas", beta, beta >= 0 && beta < 1, "in [0, 1)");
  }
}

void CheckMuon(const v1::RunConfig& config, const std::string& key, const v1::OptimConfig& optim,
               Checker* check) {
  const v1::TrainerConfig& trainer = config.trainer();
  if (optim.name() != v1::OPTIMIZER_NAME_MUON) return;
  const int num_dims = std::min(trainer.mesh_dim_names_size(), trainer.mesh_shape_size());
  for (int i = 0; i < num_dims; ++i) {
    if (trainer.mesh_dim_names(i) != "tp" || trainer.mesh_shape(i) <= 1) continue;
    check->Fail(
        key, absl::StrCat("muon updates whole matrices, which a trainer.mesh_shape with tp ",
                          trainer.mesh_shape(i), " splits; use dp_shard in place of tp, or adamw"));
  }
}

}  // namespace tandem::config
