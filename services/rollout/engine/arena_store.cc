#include "services/rollout/engine/arena_store.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/io/dtype.h"
#include "common/status/status_macros.h"
#include "common/weights/manifest.h"

namespace tandem::rollout {

absl::StatusOr<std::unique_ptr<ArenaStore>> ArenaStore::Create(const model::Transformer& model,
                                                               ArenaPair& arenas,
                                                               CommitStaged commit) {
  const io::DType dtype = arenas.dtype() == at::kBFloat16 ? io::DType::kBF16 : io::DType::kF32;
  ASSIGN_OR_RETURN(common::v1::Manifest manifest, weights::MakeManifest(model.table(), dtype));
  return std::unique_ptr<ArenaStore>(
      new ArenaStore(model, arenas, std::move(commit), std::move(manifest)));
}

absl::StatusOr<std::unique_ptr<ArenaStore>> ArenaStore::Create(Engine& engine,
                                                               absl::Duration commit_timeout) {
  return Create(engine.model(), engine.weights(), [&engine, commit_timeout](int64_t version) {
    return engine.Commit(version, absl::Now() + commit_timeout);
  });
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
  const model::ParameterTable::SegmentRef ref = table_.segments()[index];
  const auto element = static_cast<int64_t>(c10::elementSize(arenas_.dtype()));
  const int64_t begin = table_.segment(ref).offset - table_.parameter(ref.parameter).offset;
  return arenas_.Derive(ref.parameter, begin + offset / element, size / element);
}

bool ArenaStore::ReadsAgain(int index) {
  return arenas_.Derives(table_.segments()[index].parameter);
}

void ArenaStore::DropStaged() {
  if (staged_ == nullptr) return;
  staged_ = nullptr;
  arenas_.DropStaged();
}

absl::StatusOr<CommitResult> ArenaStore::Commit(int64_t policy_version,
                                                const std::string& model_digest) {
  ASSIGN_OR_RETURN(const CommitResult result, commit_(policy_version));
  staged_ = nullptr;
  absl::MutexLock lock(&mu_);
  live_model_digest_ = model_digest;
  return result;
}

absl::Span<const std::byte> ArenaStore::Live(int index) const {
  const std::shared_ptr<const model::Arena> live = arenas_.live();
  if (live == nullptr) return {};
  return live->SegmentBytes(index);
}

}  // namespace tandem::rollout
