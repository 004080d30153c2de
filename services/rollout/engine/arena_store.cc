#include "services/rollout/engine/arena_store.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"
#include "common/weights/manifest.h"
#include "common/weights/update_place.h"

namespace tandem::rollout {

absl::StatusOr<std::unique_ptr<ArenaStore>> ArenaStore::Create(const model::Transformer& model,
                                                               ArenaPair& arenas,
                                                               CommitStaged commit) {
  ASSIGN_OR_RETURN(common::v1::Manifest manifest,
                   weights::MakeManifest(model.table(), model::FileDType(arenas.dtype())));
  ASSIGN_OR_RETURN(auto ops, weights::CreateDeviceOps(arenas.staged_on()));
  ASSIGN_OR_RETURN(common::v1::UpdatePlace place, weights::PlaceOf(arenas.staged_on()));
  return std::unique_ptr<ArenaStore>(new ArenaStore(arenas, std::move(commit), std::move(manifest),
                                                    std::move(place), std::move(ops)));
}

absl::StatusOr<std::unique_ptr<ArenaStore>> ArenaStore::Create(Engine& engine,
                                                               absl::Duration commit_timeout) {
  return Create(engine.model(), engine.weights(),
                [&engine, commit_timeout](int64_t version, int64_t incarnation) {
                  return engine.Commit(version, absl::Now() + commit_timeout, incarnation);
                });
}

int64_t ArenaStore::live_incarnation() const {
  if (live_version() < 0) return 0;
  absl::MutexLock lock(&mu_);
  return live_incarnation_;
}

std::string ArenaStore::live_model_digest() const {
  absl::MutexLock lock(&mu_);
  return live_model_digest_;
}

absl::Status ArenaStore::PrepareStaging() {
  ASSIGN_OR_RETURN(staged_, arenas_.Staged());
  return absl::OkStatus();
}

absl::Status ArenaStore::Arrived(int index, int64_t offset, int64_t size) {
  staged_->Pack(index, offset, size);
  return absl::OkStatus();
}

void ArenaStore::WriteStaged(int index, int64_t offset, absl::Span<const std::byte> from) {
  staged_->Write(index, offset, from);
}

void ArenaStore::ReadStaged(int index, int64_t offset, absl::Span<std::byte> to) const {
  staged_->Read(index, offset, to);
}

absl::Status ArenaStore::ReadLive(int index, int64_t offset, absl::Span<std::byte> to) const {
  const std::shared_ptr<const model::PackedArena> live = arenas_.live();
  if (live == nullptr) return absl::FailedPreconditionError("no weights are live");
  live->Read(index, offset, to);
  return absl::OkStatus();
}

weights::UpdateMemory::Grain ArenaStore::GrainOf(int index) const {
  const model::PackedArena::Grain grain = staged_->GrainOf(index);
  return {grain.before, grain.size_bytes};
}

void ArenaStore::DropStaged() {
  if (staged_ == nullptr) return;
  staged_ = nullptr;
  arenas_.DropStaged();
}

absl::StatusOr<CommitResult> ArenaStore::Commit(int64_t policy_version, int64_t incarnation,
                                                const std::string& model_digest) {
  ASSIGN_OR_RETURN(const CommitResult result, commit_(policy_version, incarnation));
  staged_ = nullptr;
  absl::MutexLock lock(&mu_);
  live_model_digest_ = model_digest;
  live_incarnation_ = incarnation;
  return result;
}

absl::Span<const std::byte> ArenaStore::Live(int index) const {
  const std::shared_ptr<const model::PackedArena> live = arenas_.live();
  if (live == nullptr) return {};
  return live->SegmentBytes(index);
}

}  // namespace tandem::rollout
