#include "services/rollout/engine/arena_pair.h"

#include <malloc.h>

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
  return live_ < 0 || released_ ? nullptr : slots_[live_].arena;
}

namespace {

absl::Status Refused(const model::ParameterTable& table, absl::string_view what,
                     const std::exception& error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " of ", table.num_parameters(), " parameters does not fit in memory: ", error.what()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<model::Arena>> ArenaPair::Staged() {
  absl::MutexLock lock(&mu_);
  Slot& slot = slots_[live_ == 0 ? 1 : 0];
  if (slot.arena == nullptr) {
    try {
      slot.arena = std::make_shared<model::Arena>(table_, dtype_);
      slot.packed = std::make_unique<model::PackedWeights>(*slot.arena);
    } catch (const std::exception& error) {
      return Refused(table_, "the staged arena", error);
    }
  }
  slot.packed->Invalidate();
  has_stager_ = true;
  return slot.arena;
}

absl::Status ArenaPair::Derive(int parameter, int64_t first, int64_t count) {
  try {
    idle().packed->Pack(parameter, first, count);
  } catch (const std::exception& error) {
    return Refused(table_, "the packed copy", error);
  }
  return absl::OkStatus();
}

absl::Status ArenaPair::DeriveRest() {
  try {
    idle().packed->PackRest();
  } catch (const std::exception& error) {
    return Refused(table_, "the packed copy", error);
  }
  return absl::OkStatus();
}

const model::ParameterProvider* ArenaPair::live_parameters() const {
  absl::MutexLock lock(&mu_);
  return live_ < 0 || released_ ? nullptr : slots_[live_].packed.get();
}

void ArenaPair::Flip(int64_t version) {
  absl::MutexLock lock(&mu_);
  live_ = live_ == 0 ? 1 : 0;
  live_version_ = version;
  released_ = false;
  has_stager_ = false;
}

void ArenaPair::DropStaged() {
  absl::MutexLock lock(&mu_);
  has_stager_ = false;
}

void ArenaPair::Release() {
  absl::MutexLock lock(&mu_);
  const int staged = live_ == 0 ? 1 : 0;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    if (slots_[i].arena == nullptr || (i == staged && has_stager_)) continue;
    slots_[i].packed->ReleaseMemory();
    slots_[i].arena->ReleaseMemory();
  }
  // What was freed in pieces.
  malloc_trim(0);
  live_version_ = -1;
  released_ = true;
}

}  // namespace tandem::rollout
