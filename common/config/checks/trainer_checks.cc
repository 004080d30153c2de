#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/checks/checks.h"

namespace tandem::config {

void CheckTrainer(const v1::TrainerConfig& trainer, Checker* check) {
  check->Integer("trainer.ranks", trainer.ranks(), 1, kMaxProcesses);
  check->Integer("trainer.total_steps", trainer.total_steps(), 0);
  check->Number("trainer.total_epochs", trainer.total_epochs(),
                trainer.total_epochs() >= 0 && trainer.total_epochs() <= 1e6, "in [0, 1e6]");
  if (absl::StartsWith(trainer.save_best(), "val") && trainer.test_freq() == 0) {
    check->Fail("trainer.save_best", absl::StrCat("needs trainer.test_freq > 0, for only ",
                                                  "evaluations measure ", trainer.save_best()));
  }
  check->Integer("trainer.max_staleness", trainer.max_staleness(), 0);
  check->Integer("trainer.test_freq", trainer.test_freq(), 0);
  check->Integer("trainer.save_freq", trainer.save_freq(), 0);
  CheckDevice("trainer.device", trainer.device(), check);
  check->Number(
      "trainer.save_interval_seconds", trainer.save_interval_seconds(),
      trainer.save_interval_seconds() >= 0 && trainer.save_interval_seconds() <= kMaxSeconds,
      "of seconds in [0, 1e7]");
  check->Integer("trainer.keep_last", trainer.keep_last(), 0);
  check->Integer("trainer.max_skipped_steps", trainer.max_skipped_steps(), 0);
  check->Integer("trainer.max_tokens_per_micro_batch", trainer.max_tokens_per_micro_batch(), 1);
  check->Integer("trainer.threads", trainer.threads(), 0, kMaxProcesses);
  check->Integer("trainer.prefetch_units", trainer.prefetch_units(), 0);
  check->Integer("trainer.activation_checkpointing_interval",
                 trainer.activation_checkpointing_interval(), 1);
  check->Seconds("trainer.collective_timeout_s", trainer.collective_timeout_s());
  check->Seconds("trainer.update_timeout_s", trainer.update_timeout_s());
  check->Number("trainer.driver_lease_s", trainer.driver_lease_s(),
                trainer.driver_lease_s() > 0 && trainer.driver_lease_s() <= 86400,
                "of seconds in (0, 86400]");
  if (!trainer.endpoint().empty()) check->Address("trainer.endpoint", trainer.endpoint());
  for (const int64_t size : trainer.mesh_shape())
    check->Integer("trainer.mesh_shape", size, 1, kMaxProcesses);
  check->Integer("trainer.min_unit_bytes", trainer.min_unit_bytes(), 0);
  check->Integer("trainer.max_unit_bytes", trainer.max_unit_bytes(), 0);
  if (trainer.max_unit_bytes() > 0 && trainer.max_unit_bytes() < trainer.min_unit_bytes()) {
    check->Fail("trainer.max_unit_bytes",
                absl::StrFormat("expected 0 or at least trainer.min_unit_bytes (%d), found %d",
                                trainer.min_unit_bytes(), trainer.max_unit_bytes()));
  }
  check->OnlyOne("trainer.pipeline_model_parallel_size", trainer.pipeline_model_parallel_size(),
                 kMaxProcesses);
  if (!trainer.mesh().empty() && trainer.mesh() != "auto") {
    check->Fail("trainer.mesh", absl::StrCat("expected auto or nothing, found \"", trainer.mesh(),
                                             "\"; set a shape with trainer.mesh_shape"));
  }
  check->Integer("trainer.memory_megabytes", trainer.memory_megabytes(), 0, kMaxMegabytes);
}

}  // namespace tandem::config
