#include "services/rollout/engine/arena_pair.h"

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::rollout {

int64_t ArenaPair::live_version() const {
  absl::MutexLock lock(&mu_);
  return live_version_;
}

std::shared_ptr<const model::Arena> ArenaPair::live() const {
  absl::MutexLock lock(&mu_);
  return live_ < 0 ? nullptr : arenas_[live_];
}

absl::StatusOr<std::shared_ptr<model::Arena>> ArenaPair::Staged() {
  absl::MutexLock lock(&mu_);
  std::shared_ptr<model::Arena>& idle = arenas_[live_ == 0 ? 1 : 0];
  if (idle != nullptr) return idle;
  try {
    idle = std::make_shared<model::Arena>(table_, dtype_);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the staged weights take ", table_.num_parameters() >> 20,
                     "Mi parameters more, which the system refused: ", error.what()));
  }
  return idle;
}

void ArenaPair::Flip(int64_t version) {
  absl::MutexLock lock(&mu_);
  live_ = live_ == 0 ? 1 : 0;
  live_version_ = version;
}

}  // namespace tandem::rollout
