#include "services/rollout/receive/arena_pair.h"

#include <malloc.h>

#include <algorithm>
#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {

int64_t ArenaPair::live_version() const {
  absl::MutexLock lock(&mu_);
  return live_version_;
}

std::shared_ptr<const model::PackedArena> ArenaPair::live() const {
  absl::MutexLock lock(&mu_);
  return live_ < 0 || released_ ? nullptr : arenas_[live_];
}

namespace {

absl::Status Refused(const model::ParameterTable& table, absl::string_view what,
                     const std::exception& error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " of ", table.num_parameters(), " parameters does not fit in memory: ", error.what()));
}

}  // namespace

absl::Status ArenaPair::Provide(int i) {
  if (arenas_[i] != nullptr) return absl::OkStatus();
  try {
    arenas_[i] = std::make_shared<model::PackedArena>(table_, dtype_, /*packs=*/device_.is_cpu(),
                                                      staged_on_);
  } catch (const std::exception& error) {
    return Refused(table_, i == staged() ? "the staged arena" : "the live arena", error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<model::PackedArena>> ArenaPair::Staged() {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(ProvideOnDevice());
  RETURN_IF_ERROR(Provide(staged()));
  has_stager_ = true;
  return arenas_[staged()];
}

absl::Status ArenaPair::ProvideOnDevice() {
  if (device_.is_cpu()) return absl::OkStatus();
  if (stages_on_device()) return Provide(1);
  if (on_device_ != nullptr) return absl::OkStatus();
  try {
    on_device_ = std::make_unique<model::Arena>(table_, dtype_, device_);
  } catch (const std::exception& error) {
    return Refused(table_, absl::StrCat("the arena on ", device_.str()), error);
  }
  return absl::OkStatus();
}

const model::ParameterProvider* ArenaPair::live_parameters() const {
  absl::MutexLock lock(&mu_);
  if (live_ < 0 || released_) return nullptr;
  if (device_.is_cpu() || stages_on_device()) return arenas_[live_].get();
  return on_device_.get();
}

bool ArenaPair::StagedEqualsLive(absl::Span<const int> parameters) const {
  std::shared_ptr<const model::PackedArena> live;
  std::shared_ptr<const model::PackedArena> next;
  {
    absl::MutexLock lock(&mu_);
    if (live_ < 0 || released_) return false;
    live = arenas_[live_];
    next = arenas_[staged()];
  }
  if (next == nullptr) return false;
  try {
    return std::all_of(parameters.begin(), parameters.end(),
                       [&](int index) { return live->HasSameBytes(*next, index); });
  } catch (const std::exception&) {
    return false;  // Load() meets the error, and says it
  }
}

void ArenaPair::Flip(int64_t version) {
  absl::MutexLock lock(&mu_);
  live_ = stages_on_device() ? 1 : staged();
  live_version_ = version;
  released_ = false;
  has_stager_ = false;
}

absl::Status ArenaPair::Load() {
  if (device_.is_cpu()) return absl::OkStatus();
  model::Arena* to = nullptr;
  const model::Arena* from = nullptr;
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    status = ProvideOnDevice();
    if (status.ok()) {
      to = stages_on_device() ? &arenas_[1]->arena() : on_device_.get();
      from = &arenas_[staged()]->arena();
    }
  }
  if (status.ok()) {
    try {
      // Without the lock, so that others can query the live version.
      to->CopyFrom(*from);
      return absl::OkStatus();
    } catch (const std::exception& error) {
      status = absl::InternalError(absl::StrCat("cannot copy weights to ", device_.str(), ": ",
                                                comm::FirstLine(error.what())));
    }
  }
  // The device arena may mix two versions.
  absl::MutexLock lock(&mu_);
  live_version_ = -1;
  released_ = true;
  return status;
}

void ArenaPair::DropStaged() {
  absl::MutexLock lock(&mu_);
  has_stager_ = false;
}

void ArenaPair::Release() {
  absl::MutexLock lock(&mu_);
  for (int i = 0; i < static_cast<int>(arenas_.size()); ++i) {
    if (arenas_[i] == nullptr || (i == staged() && has_stager_)) continue;
    if (stages_on_device()) {
      arenas_[i].reset();
    } else {
      arenas_[i]->ReleaseMemory();
    }
  }
  on_device_.reset();
  // Returns freed fragments to the system.
  malloc_trim(0);
  live_version_ = -1;
  released_ = true;
}

}  // namespace tandem::rollout
